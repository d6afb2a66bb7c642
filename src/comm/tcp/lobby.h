/* lobby.h - those who have proved themselves at a meeting point, until they know what becomes of them. */
#ifndef TW_COMM_TCP_LOBBY_H
#define TW_COMM_TCP_LOBBY_H

#include "acceptor.h"
#include "dial.h"
#include "lookup.h"
#include "rendezvous_message.h"

typedef struct tcp_client {
    int fd, rank, has_asked;
    double since;
    char host[TCP_NAME];
    tcp_wish wish;
    size_t heard;
    unsigned char request[TCP_REQUEST], own_key[TCP_SECRET], client_key[TCP_SECRET];
    tcp_dial call; /* to where it says that it can be called, and whether it can be is known: is_placed */
    tcp_lookup *lookup;
    struct addrinfo *list;
    double called;
    int is_placed;
    unsigned char *reply;
    size_t reply_size, said;
} tcp_client;

/* Whether a wish can be: TCP_GROUP, or what is said instead, and why. */
typedef tcp_reply_kind (*tcp_judge)(void *context, const tcp_wish *wish, char text[TCP_REASON]);

typedef struct tcp_lobby {
    tcp_acceptor *acceptor; /* its own */
    tcp_client *clients;    /* in the order in which they came */
    int count, room;
    int asked;            /* of them, those that are placed and wait for an answer */
    struct pollfd *polls; /* of the acceptor, the clients and the calls, and one more */
    int bell;             /* what else ends a wait; -1: nothing */
    int wanted;           /* as many may be placed */
    tcp_judge judge;
    void *context; /* of judge */
} tcp_lobby;

/* Takes an open acceptor, also when it fails. NULL: no memory. */
tcp_lobby *tcp_lobby_create(tcp_acceptor *acceptor, int room);
void tcp_lobby_destroy(tcp_lobby *lobby);
/* Nobody comes any more; those that are there are sent away without a word. */
void tcp_lobby_close(tcp_lobby *lobby);

/* What a client that is called at its address has to know: those at a meeting point do. */
void tcp_call_secret(const unsigned char meeting[TCP_SECRET], const char *address, unsigned char secret[TCP_SECRET]);

/* Waits for `seconds` at most until somebody comes, asks or goes. */
void tcp_lobby_go_round(tcp_lobby *lobby, double seconds);
/* Tells a client why, as far as it listens. */
void tcp_lobby_turn_away(tcp_lobby *lobby, int i, tcp_reply_kind kind, const char *reason);
/* Judges those anew that have asked, where the judge is another by now. */
void tcp_lobby_judge_again(tcp_lobby *lobby);
void tcp_lobby_remove(tcp_lobby *lobby, int i);

#endif
