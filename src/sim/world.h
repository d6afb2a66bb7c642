/* world.h - the inside of tw_world, shared by its files. All of it is touched by the thread with the baton only, so
 * nothing here needs a lock. */
#ifndef TW_SIM_WORLD_H
#define TW_SIM_WORLD_H

#include "matching.h"
#include "network.h"
#include "pool.h"

typedef struct tw_receipt tw_receipt;
typedef struct tw_payload tw_payload;

/* A rank's place in the world: what the transport calls self. */
typedef struct tw_seat {
    tw_world *world;
    int rank;
    tw_comm *comm;
    double gone_at;      /* when it left or was killed; INFINITY before */
    int gave_up;         /* it left after a failure */
    tw_waiters waiters;  /* threads of this rank that wait for a message */
    tw_receipt *awaited; /* the receives they wait for */
    tw_payload *recent;  /* of the last message it began to send */
    uint64_t bytes;      /* it sent to other hosts */
} tw_seat;

struct tw_world {
    tw_world_options options;
    tw_virtual *clock;
    tw_network network;
    tw_matching unmatched;
    tw_pool letters, receipts, short_payloads;
    tw_payload *payloads; /* all of them */
    tw_seat *seats;       /* one a rank */
    tw_timer limit;
    int ran, over; /* over: the time limit has passed */
    tw_world_worker worker;
    void *context;
};

/* virtual_transport.c: the transport. */
tw_status tw_seat_join(tw_seat *seat);
/* The rank takes no more part; whoever waits for it is told. */
void tw_seat_leave(tw_seat *seat);
tw_status tw_messages_create(tw_world *world);
void tw_messages_free(tw_world *world);

#endif
