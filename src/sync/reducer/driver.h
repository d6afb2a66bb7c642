/* driver.h - takes the messages of a step through their rounds, several at a time: while one is on the wire, another
 * one is coded.
 *
 * Messages go by lanes. A lane is a channel of its own and, unless the caller is to do the work, a thread. Message m
 * takes lane m mod lanes, the messages of a lane one after the other: so what is exchanged on a lane is the same on
 * every rank, however the lanes take turns. Only so many lanes code at a time as there are threads for it, as a rule
 * one. Such a lane has a turn, and gives it up while it waits for others. Messages begin in order, so many of them at
 * once. The last one can wait, within its first turn, until all others have had theirs: what those found is known then.
 *
 * Of schemes that exchange every tensor as it is, the messages are nearly all line. Their all-reduces do not share it:
 * each begins when the one before has no more than sums to send. So while one ends and the next begins, the line does
 * not rest. */
#ifndef TW_REDUCER_DRIVER_H
#define TW_REDUCER_DRIVER_H

#include "comm.h"
#include "scheme.h"
#include "thread.h"

enum { TW_MOST_LANES = 8 };

typedef struct tw_driver tw_driver;

/* One message's way. */
typedef struct tw_lane {
    tw_driver *driver;
    tw_channel *channel; /* for rounds */
    tw_channel *aside;   /* inside the host, before and after them; NULL: there is none */
    tw_thread thread;
    size_t message;          /* it has taken */
    size_t finished;         /* of its messages of this step */
    int begun;               /* which has had its first turn */
    const void *root_packet; /* what the last broadcast brought */
    size_t root_size;
} tw_lane;

/* How long a driver did what, in seconds of the clock. */
typedef struct tw_driver_seconds {
    double coding; /* some lane had a turn */
    double wire;   /* some message was under way and no lane had a turn: all of them waited for others */
} tw_driver_seconds;

struct tw_driver {
    tw_reducer *reducer; /* whose messages these are */
    tw_lane lanes[TW_MOST_LANES];
    int lane_count, thread_count;
    int coders;    /* lanes that code at once */
    tw_mutex lock; /* guards what stands below */
    tw_condition changed;
    int lock_made, condition_made;
    size_t open;   /* messages of this step that may begin: all before this one */
    size_t taken;  /* that a lane has taken */
    size_t begun;  /* that had their first turn */
    size_t passed; /* that have left the line to the next */
    size_t done;   /* that are over */
    int under_way; /* taken by a lane and not over */
    int coding;    /* lanes that have a turn */
    int waiting;   /* a caller is in tw_driver_wait or its like */
    int stopping;
    tw_driver_seconds seconds;
    double since;      /* the last look at the clock */
    tw_status failure; /* of a message; the driver is then finished */
    char failure_text[512];
};

/* Numbers that the lanes beyond the first take behind their first channel's: it is made with tw_channel_create_wide. */
#define TW_LANE_NUMBERS (TW_MOST_LANES - 1)

/* Makes the driver of a reducer that has its messages, in place (zeroed), whatever comes of it to be released. Lanes
 * have the first threads of overlap=on; without, tw_driver_wait does it all, one message after the other. */
tw_status tw_driver_create(tw_reducer *reducer);
/* Ends the lanes' threads; messages under way are waited for, at most until the deadline. */
void tw_driver_release(tw_driver *driver);

/* Messages before `open` may begin. */
void tw_driver_open(tw_driver *driver, size_t open);
/* Waits until a message, which is open, is over; or, with `message` beyond the last, until all are, and gets ready for
 * the next step; or until one has failed and none is under way any more; or until tw_clock() reads `deadline`, and then
 * *over is 0. Without threads the clock is looked at when a message is over, and one is taken in any case.
 * TW_ERROR_ORDER for a second thread: of the two that wait for a step one begins the next, and the other would wait for
 * that. */
tw_status tw_driver_wait(tw_driver *driver, size_t message, double deadline, int *over);
/* What tw_driver_wait would return, if a message has failed or the comm is broken by now; else TW_OK. */
tw_status tw_driver_failure(tw_driver *driver);
tw_driver_seconds tw_driver_spent(tw_driver *driver);
/* Bytes and messages of all lanes: in rounds, and before and after them. */
tw_traffic tw_driver_traffic(const tw_driver *driver);
tw_traffic tw_driver_traffic_aside(const tw_driver *driver);

#endif
