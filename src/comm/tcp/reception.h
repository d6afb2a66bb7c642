/* reception.h - those who have proved themselves at a meeting point, until they know what becomes of them. */
#ifndef TW_COMM_TCP_RECEPTION_H
#define TW_COMM_TCP_RECEPTION_H

#include "door.h"
#include "letter.h"

typedef struct tcp_visitor {
    int fd, rank, has_asked;
    double since;
    char host[TCP_NAME];
    tcp_wish wish;
    size_t heard;
    unsigned char request[TCP_REQUEST], own_key[TCP_SECRET], visitor_key[TCP_SECRET];
    unsigned char *reply;
    size_t reply_size, said;
} tcp_visitor;

/* Whether a wish can be: TCP_GROUP, or what is said instead, and why. */
typedef tcp_reply_kind (*tcp_judge)(void *context, const tcp_wish *wish, char text[TCP_REASON]);

typedef struct tcp_reception {
    tcp_door *door;        /* its own */
    tcp_visitor *visitors; /* in the order in which they came */
    int count, room;
    int asked;            /* of them, those that are waiting for an answer */
    struct pollfd *polls; /* of the door and the visitors, and one more */
    int bell;             /* what else ends a wait; -1: nothing */
    int wanted;           /* as many may ask */
    tcp_judge judge;
    void *context; /* of judge */
} tcp_reception;

/* Takes an open door, also when it fails. NULL: no memory. */
tcp_reception *tcp_reception_create(tcp_door *door, int room);
void tcp_reception_destroy(tcp_reception *reception);
/* Nobody comes any more; those that are there are sent away without a word. */
void tcp_reception_close(tcp_reception *reception);

/* Waits for `seconds` at most until somebody comes, asks or goes. */
void tcp_reception_go_round(tcp_reception *reception, double seconds);
/* Tells a visitor why, as far as it listens. */
void tcp_reception_turn_away(tcp_reception *reception, int i, tcp_reply_kind kind, const char *reason);
void tcp_reception_remove(tcp_reception *reception, int i);

#endif
