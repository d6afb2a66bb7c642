/* route.h - the way from this machine to HOST:PORT, as its kernel and a few connections tell it. And a word between two
 * that want to measure the line, so that neither takes a member of a run for the other. */
#ifndef TRAINER_ROUTE_H
#define TRAINER_ROUTE_H

#include "interface.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <thinwire/thinwire.h>

enum { ROUTE_ADDRESS = 64, ROUTE_MEETING = ROUTE_ADDRESS + 16, ROUTE_SENTENCE = 384, ROUTE_TRIES = 9 };

/* What came of the connections. */
typedef enum route_answer {
    ROUTE_ACCEPTED,   /* somebody listens there */
    ROUTE_REFUSED,    /* the machine is there and says that nobody does */
    ROUTE_SILENT,     /* nothing came back: a firewall drops what is sent, or there is no machine */
    ROUTE_UNREACHABLE /* this machine, or a router on the way, says that there is no way */
} route_answer;

typedef struct route {
    route_answer answer;
    struct sockaddr_storage address; /* that was tried last, the one that accepted where one did */
    socklen_t address_bytes;
    char to[ROUTE_ADDRESS], from[ROUTE_ADDRESS]; /* addresses as numbers; `from` is "" where there is no way */
    char interface[INTERFACE_BYTES];             /* that has `from`; "" where none has */
    int mtu;                                     /* bytes of a packet that the interface takes; 0: unknown */
    bool is_direct;                              /* both are in one network, without a router between them */
    double median, worst;                        /* seconds that a connection took: there and back. ROUTE_ACCEPTED */
    char sentence[ROUTE_SENTENCE];               /* what it means, and what to do */
} route;

/* Looks the host up and tries ROUTE_TRIES connections, each for `seconds` at most; one that fails is the last. They are
 * closed at once and say nothing. TW_ERROR_ARGUMENT: `target` is no HOST:PORT, or the host has no address. */
tw_status route_find(const char *target, double seconds, route *found);

/* Tells who listens there that a line is to be measured, and hears whether it is there for that: TW_ERROR_PEER where it
 * is not, or says nothing for `seconds`. A group that listens there is told nothing. */
tw_status route_greet(const route *to, double seconds);

/* Listens on `port` of all addresses. TW_ERROR_SYSTEM: the port is taken. */
tw_status route_listen(int port, int *listener);

/* Until somebody greets, and answers, or `seconds` have passed, which is TW_ERROR_PEER; then the listener is closed.
 * `meeting` receives HOST:PORT, the address that was called: both may meet there. */
tw_status route_await(int listener, int port, double seconds, char meeting[ROUTE_MEETING]);

/* "accepted", "refused", "silent", "unreachable" */
const char *route_answer_name(route_answer answer);

#endif
