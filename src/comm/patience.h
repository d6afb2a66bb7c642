/* patience.h - how long a rank waits for another: the one rule of all that wait.
 *
 * A peer is lost when nothing has been heard of it for the comm's timeout; or when it is heard of, and has kept this
 * rank waiting for the comm's patience all the same. A transport that hears nothing of a peer but its messages
 * (tw_transport_ops.signs is NULL) has one limit, the patience, which is the timeout where nobody has set it.
 *
 * The log is told once of a wait for ranks that answer while their programs are busy, when it takes ten seconds (or a
 * timeout, where that is less) more than any wait before: who is slower in each step is told of once.
 *
 * Only seconds in which this process itself was awake are spent. */
#ifndef TW_COMM_PATIENCE_H
#define TW_COMM_PATIENCE_H

#include "object.h"

/* What is left of one wait, in seconds. */
typedef struct tw_wait {
    double silence, patience;
    uint64_t signs; /* of life, when they were last counted; */
    int counted;    /* and whether they have been */
    int hears;      /* silence has a limit of its own */
    double waited;  /* so far, */
    int told;       /* and of this wait the log was told */
} tw_wait;

void tw_wait_begin(const tw_comm *comm, tw_wait *wait);
/* The same wait goes on for another peer, whose silence begins now. */
void tw_wait_turn(const tw_comm *comm, tw_wait *wait);
/* How long to wait before the next look at the peer. */
double tw_wait_nap(const tw_comm *comm, const tw_wait *wait);
void tw_wait_spend(tw_wait *wait, double seconds);
/* Looks for signs of life, and asks for them while there is time for an answer. */
void tw_wait_look(const tw_comm *comm, int peer, tw_wait *wait);
/* Tells the log, if it is time to. */
void tw_wait_tell(tw_comm *comm, tw_wait *wait);
/* It is over, and what was waited for is there. */
void tw_wait_end(tw_comm *comm, const tw_wait *wait);
static inline int tw_wait_is_over(const tw_wait *wait)
{
    return wait->silence <= 0 || wait->patience <= 0;
}
/* The sentence for a wait that is over. TW_ERROR_PEER. */
tw_status tw_wait_fail(const tw_comm *comm, int peer, const tw_wait *wait);

#endif
