/* dial.h - one connection that this side begins, and its proof; tried again until it holds. Nothing here waits. */
#ifndef TW_COMM_TCP_DIAL_H
#define TW_COMM_TCP_DIAL_H

#include "address.h"
#include "hello.h"

#include <math.h>
#include <poll.h>

typedef enum tcp_dial_state { TCP_IDLE, TCP_CONNECTING, TCP_LISTENING, TCP_PROVING, TCP_CONNECTED } tcp_dial_state;

typedef struct tcp_dial {
    tcp_place place;
    const struct addrinfo *list, *next; /* where to try, and where next; the list is not its own */
    tcp_dial_state state;
    int fd;
    double when;  /* to try again, or to give up this trial */
    double begun; /* this trial */
    double pause, said_at;
    double round_trip; /* seconds; once connected */
    size_t heard;
    unsigned char challenge[TCP_CHALLENGE], hello[TCP_HELLO], answer[TCP_PROOF];
    int answered;          /* the last trial reached somebody */
    int reached;           /* some trial has, and it was a thinwire of this version */
    int refuses;           /* 1: of the addresses, from the first on, one does; -1: at one somebody may be */
    int refused;           /* nobody listens at any of them; until the caller has seen it */
    const char *why;       /* the last trial failed; NULL: there was none */
    tcp_dial_state failed; /* in which state that was, */
    int error;             /* and errno, if nobody was reached */
    tcp_verdict language;  /* that the last one spoke who was heard */
} tcp_dial;

void tcp_dial_create(tcp_dial *dial, tcp_place place, const struct addrinfo *list);
void tcp_dial_destroy(tcp_dial *dial);

/* What a person is told who may have started nothing, or given another port, after so many seconds. Who waits for less
 * than a second is told why when it is over. */
enum { TCP_NOBODY_TEXT = 1600 };
static inline double tcp_soon(double patience)
{
    return fmin(10, fmax(1, patience / 2));
}
/* Of the trial that is under way, if that lasts, or else of the last one. 0: there is nothing to tell, since a thinwire
 * of this version has answered, or no trial has come to anything. */
int tcp_dial_tell(const tcp_dial *dial, double now, const char *meeting, double seconds, char text[TCP_NOBODY_TEXT]);

/* Tries again, where it is time to; 1 when it is under way. */
int tcp_dial_begin(tcp_dial *dial, double now);
struct pollfd tcp_dial_poll(const tcp_dial *dial);
/* After poll. When it has become TCP_CONNECTED, dial->fd is the caller's. */
void tcp_dial_serve(tcp_dial *dial, int happened, double now, const unsigned char secret[TCP_SECRET]);

#endif
