/* subset.h - a comm of some of another comm's ranks, over the same transport. */
#ifndef TW_COMM_SUBSET_H
#define TW_COMM_SUBSET_H

#include "channel.h"

/* What an owner that has to know how its peers are sees of the subset's waiting. Ranks are the whole comm's. */
typedef struct tw_watch {
    void *context;
    /* Called now and then while a message from or to `peer` is waited for, and for the first time soon after the wait
     * began: anything but TW_OK ends the wait with that status. A wait has no other end than this and the message's. */
    tw_status (*look)(void *context, int peer, int is_first);
    /* The transport says that nothing comes from this peer, or gets to it, any more. */
    void (*lost)(void *context, int peer);
    tw_counters *counters; /* (optional) the subset's messages are counted here, too */
} tw_watch;

/* Rank i of the subset is ranks[i] of `whole`; this rank is among them. Its channel c uses the number first_channel + c
 * of the whole, which nobody else may. Without a watch (NULL) it has whole's timeout, and the first failure of the
 * two ends both. */
tw_status tw_comm_create_subset(tw_comm *whole, const int *ranks, int count, unsigned first_channel,
                                const tw_watch *watch, tw_comm **subset);

#endif
