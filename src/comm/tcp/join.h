/* join.h - both sides of a meeting point. */
#ifndef TW_COMM_TCP_JOIN_H
#define TW_COMM_TCP_JOIN_H

#include "listener.h"

/* What tw_tcp_join was asked for. */
typedef struct tcp_joining {
    const char *meeting; /* as it was written */
    tcp_address at;
    int rank, size;
    tw_tcp_options options;
    double seconds, deadline; /* of the whole; by tw_clock */
    const char *why;          /* it came to nothing so far; NULL: nothing has been tried */
    unsigned char secret[TCP_SECRET];
} tcp_joining;

/* Brings the others together behind an open door, which becomes its own. */
tw_status tcp_join_as_host(tcp_joining *joining, tcp_door *door, tw_comm **comm);
/* Goes to whoever does. With may_be_host it returns TW_OK and no comm when nobody listens there, and sets *is_free. */
tw_status tcp_join_as_guest(tcp_joining *joining, int may_be_host, int *is_free, tw_comm **comm);

/* Connects with the others: text has an address a line. tcp is destroyed. */
tw_status tcp_join_group(const tcp_joining *joining, tw_tcp *tcp, int rank, char *text, tw_comm **comm);

/* The listener of this rank: `host` is where others reach it, `bind` what it listens on, where the caller did not say.
 */
tw_status tcp_join_listen(const tcp_joining *joining, const char *bind, const char *host, tw_tcp **tcp);

#endif
