/* timers.h - what is to happen at which virtual time: a heap, earliest first, ties by the order of arming. */
#ifndef TW_SIM_TIMERS_H
#define TW_SIM_TIMERS_H

#include <thinwire/thinwire.h>

typedef struct tw_timer tw_timer;

/* Lives in what it belongs to. */
struct tw_timer {
    void (*fire)(tw_timer *timer); /* no longer armed when called */
    double time;
    uint64_t order;
    size_t place; /* in the heap, counted from 1; 0: not armed */
};

typedef struct tw_timers {
    tw_timer **heap; /* the children of place p are at 2p and 2p + 1 */
    size_t count, reserved, capacity;
    uint64_t armed;
} tw_timers;

/* Makes room for `more` timers, so that arming cannot fail. */
tw_status tw_timers_reserve(tw_timers *timers, size_t more);
void tw_timers_free(tw_timers *timers);

/* An armed timer is moved. */
void tw_timers_arm(tw_timers *timers, tw_timer *timer, double time);
void tw_timers_disarm(tw_timers *timers, tw_timer *timer);
/* Disarms the earliest and returns it; NULL when none is armed. */
tw_timer *tw_timers_take(tw_timers *timers);

#endif
