/* flows.h - how many messages went from one rank to another on one channel: both ends count, and the count is part of
 * the seal. */
#ifndef TW_COMM_SEALED_FLOWS_H
#define TW_COMM_SEALED_FLOWS_H

#include <pthread.h>
#include <stdint.h>

enum { TW_FLOW_LISTS = 256 };

typedef struct tw_flow {
    struct tw_flow *next;
    int peer, outgoing;
    unsigned channel;
    _Atomic uint64_t started; /* messages so far; one thread at a time uses a channel */
} tw_flow;

typedef struct tw_flows {
    pthread_mutex_t lock;
    tw_flow *lists[TW_FLOW_LISTS];
} tw_flows;

void tw_flows_create(tw_flows *flows);
void tw_flows_destroy(tw_flows *flows);

/* The flow, which comes to be with its first message; NULL: no memory. It stays for good. */
tw_flow *tw_flows_find(tw_flows *flows, int outgoing, int peer, unsigned channel);

#endif
