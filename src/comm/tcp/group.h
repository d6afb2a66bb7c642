/* group.h - a rank that is connected with all others: the transport's self. */
#ifndef TW_COMM_TCP_GROUP_H
#define TW_COMM_TCP_GROUP_H

#include "address.h"
#include "latecomers.h"
#include "peer.h"
#include "relay.h"

#include <stdatomic.h>

typedef struct tcp_group {
    int rank, size;
    int poller, stop; /* an epoll, and what ends it */
    int runs;
    _Atomic int has_left;
    double parting; /* seconds that destroy gives what was sent to reach the others' machines */
    pthread_t thread;
    tcp_waits waits;
    tcp_peer *peers;            /* one a rank; its own is not used */
    tcp_latecomers *latecomers; /* of the rank that has brought the group together; else NULL */
    tcp_relay *relay;           /* what it carries for others; NULL: nothing */
} tcp_group;

/* Connections to be had: fds[rank * TCP_MOST_STREAMS + stream], -1 where there is none. They are the group's from here
 * on, also when this fails, and so are the latecomers and the relay. `far` tells of which ranks a round trip takes
 * long, and `places` where they are. is_told_of: see tw_transport_ops. */
tw_status tcp_group_create(int rank, int size, int *fds, const unsigned char *far, const tcp_address *places,
                           int is_told_of, tcp_latecomers *latecomers, tcp_relay *relay, tw_comm **comm);

#endif
