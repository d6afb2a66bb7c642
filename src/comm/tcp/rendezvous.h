/* rendezvous.h - both sides of a meeting point. */
#ifndef TW_COMM_TCP_RENDEZVOUS_H
#define TW_COMM_TCP_RENDEZVOUS_H

#include "listener.h"

/* What two kinds of groups have their doors' secrets from, beside a key. */
#define TCP_OF_A_MEETING "a meeting point"
#define TCP_OF_MEMBERS "members of a group"
#define TCP_TURNED_AWAY                                                                                                \
    "what listens at %s turns this process away: it may have another key, or none, or only one of the two gives a "    \
    "number of workers"

/* What tw_tcp_join was asked for. */
typedef struct tcp_rendezvous {
    const char *meeting; /* as it was written */
    tcp_address at;
    int rank, size;
    tw_tcp_options options;
    double seconds, deadline; /* of the whole; by tw_clock */
    const char *why;          /* it came to nothing so far; NULL: nothing has been tried */
    unsigned char secret[TCP_SECRET];
} tcp_rendezvous;

/* Brings the others together behind an open acceptor, which becomes its own. */
tw_status tcp_rendezvous_serve(tcp_rendezvous *rendezvous, tcp_acceptor *acceptor, tw_comm **comm);
/* Goes to whoever does. With may_serve it returns TW_OK and no comm when nobody listens there, and sets *is_free. */
tw_status tcp_rendezvous_ask(tcp_rendezvous *rendezvous, int may_serve, int *is_free, tw_comm **comm);

/* An acceptor at the meeting point, if it is on this machine. *open: NULL, where somebody else is the server:
 * *is_taken, on this machine. Who wants another rank than 0 leaves it to others: rank 0 would come too late. */
tw_status tcp_rendezvous_try_to_listen(const tcp_rendezvous *rendezvous, tcp_acceptor **open, int *is_taken);

/* Connects with the others: text has an address a line. tcp is destroyed. */
tw_status tcp_rendezvous_connect(const tcp_rendezvous *rendezvous, tw_tcp *tcp, int rank, char *text, tw_comm **comm);

/* The listener of this rank: `host` is where others reach it, `bind` what it listens on, where the caller did not say.
 */
tw_status tcp_rendezvous_listen(const tcp_rendezvous *rendezvous, const char *bind, const char *host, tw_tcp **tcp);

#endif
