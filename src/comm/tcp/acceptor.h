/* acceptor.h - a listening socket, and those who have come to it and not yet proved who they are.
 *
 * Strangers may come in any number: they get a place among few, and a few seconds. When all places are taken, one that
 * is drawn by lot makes room: whoever knows the key needs its place for one round trip, so it will have gone by then,
 * or is lucky the next time. Nothing here waits for anybody. */
#ifndef TW_COMM_TCP_ACCEPTOR_H
#define TW_COMM_TCP_ACCEPTOR_H

#include "address.h"
#include "hello.h"

#include <poll.h>

enum { TCP_HANDSHAKES = 64, TCP_ACCEPTOR_POLLS = TCP_HANDSHAKES + 1, TCP_REASON = 320 };
#define TCP_HELLO_SECONDS 5.0

typedef struct tcp_handshake {
    int fd;
    double since;
    struct sockaddr_storage from;
    size_t said; /* bytes of the hello that have come */
    unsigned char challenge[TCP_CHALLENGE], hello[TCP_HELLO];
} tcp_handshake;

typedef struct tcp_acceptor {
    int fd, port;
    int count, polled; /* of handshakes; and of them, those that were listed last */
    int full;          /* the system has no room for one who came: the next round takes its time, and tries again */
    tcp_handshake handshakes[TCP_HANDSHAKES];
    unsigned char secret[TCP_SECRET];
    unsigned char stray_secret[TCP_SECRET]; /* of those who come with the right key to the wrong kind of group, */
    const char *stray;                      /* and what is said of them; NULL: there is no other kind */
    uint64_t refused;
    char last[TCP_REASON]; /* who was turned away last, and why */
    void (*tell)(void *context, const char *text);
    void *context; /* of tell */
} tcp_acceptor;

/* Takes the first free port of a range, 0 and 0: any, on an address, or on all (NULL). *why receives the system's error
 * where it is TW_ERROR_SYSTEM. */
tw_status tcp_acceptor_open(tcp_acceptor *acceptor, const char *bind, int first_port, int last_port, int *why);
/* Nobody comes any more; those that wait are sent away. */
void tcp_acceptor_close(tcp_acceptor *acceptor);

/* Somebody has proved to know the secret. Returns NULL and takes handshake->fd, or says why it is not wanted. */
typedef const char *(*tcp_admit)(void *context, tcp_handshake *handshake, tcp_place place);

/* What to wait for, TCP_ACCEPTOR_POLLS at most; returns how many. */
int tcp_acceptor_list(tcp_acceptor *acceptor, struct pollfd *polls);
/* After poll: lets in, hears and turns away. */
void tcp_acceptor_serve(tcp_acceptor *acceptor, const struct pollfd *polls, tcp_admit admit, void *context);
/* The proof that the other waits for. 0: it has gone. */
int tcp_acceptor_answer(const tcp_acceptor *acceptor, const tcp_handshake *handshake);

/* Counts it, and tells. */
void tcp_acceptor_refuse(tcp_acceptor *acceptor, const char *name, const char *reason);
enum { TCP_TOLD = TCP_REASON + 128 };
/* Behind a sentence on who is missing: how many were refused, and why the last was. "" where nobody was. */
void tcp_acceptor_tell(const tcp_acceptor *acceptor, char text[TCP_TOLD]);

/* A socket that waits for nothing and is not handed on to programs that this one starts. */
int tcp_make_ready(int fd);
/* What the system has not sent yet stays small, so that a small message does not wait behind a large one; a connection
 * on which nothing moves is tried now and then, so that a machine that is gone is noticed, and a router keeps it. */
void tcp_tune(int fd);
/* Sends a few bytes, which there is always room for. 0: the other has gone. */
int tcp_say(int fd, const void *bytes, size_t size);

#endif
