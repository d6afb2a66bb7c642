/* gossip.h - the inside of tw_gossip, shared by its files. A scheme is one file with one tw_gossip_ops at its end, and
 * one line in gossip_list.c. */
#ifndef TW_SYNC_GOSSIP_H
#define TW_SYNC_GOSSIP_H

#include "comm.h"
#include "members.h"
#include "schedule.h"
#include "spec.h"
#include "thread.h"

#include <thinwire/thinwire_gossip.h>

#define TW_NO_STOP UINT64_MAX
#define TW_OVERDUE 32 /* a gradient is, after so many times what one takes */

/* What the communication threads tell each other with every message. */
typedef struct tw_rumour {
    uint64_t stop;           /* the last round; TW_NO_STOP: not decided yet */
    double interval;         /* seconds the fastest worker takes for a gradient; 0: unknown */
    uint64_t told;           /* the round in which it said so: old news are forgotten */
    unsigned char *finished; /* bit r: rank r has called finish */
} tw_rumour;

/* Something a rank remembers, one float an element: saved and loaded under its name. Of its own the mean over the ranks
 * counts; or it is what another rank calls `of`. */
typedef struct tw_memory {
    const char *what;
    float *values;
    const char *of; /* NULL: its own */
    int whose;      /* rank */
} tw_memory;

enum { TW_MOST_MEMORIES = 6 };

/* What the communication thread of a synchronous scheme is asked for. */
typedef enum tw_gossip_task { TW_TASK_NONE = 0, TW_TASK_EXCHANGE, TW_TASK_MEAN } tw_gossip_task;

/* The workers of a host that act as one; see gossip_host.h. */
typedef struct tw_host {
    int64_t size;          /* option per_host; 1: each acts for itself */
    int place;             /* of this rank in its host */
    tw_comm *members;      /* of the host; NULL: each acts for itself */
    tw_comm *firsts;       /* of all hosts, on these: the gossip's */
    tw_channel *everybody; /* the gossip's channel until all had agreed on it */
    float *values;         /* of all tensors: the weights as all members have them; during a step, the step */
    float **parts;         /* each tensor's */
} tw_host;

typedef struct tw_gossip_ops tw_gossip_ops;
typedef struct tw_pass tw_pass; /* gossip_pass.h */

/* The head of every scheme's struct. */
struct tw_gossip {
    const tw_gossip_ops *ops;
    tw_channel *channel;
    tw_channel *view; /* where rounds take place: the channel, or that of the group of those that are left */
    int rank, size;   /* in the view: those of the host, where workers of a host act as one */
    tw_host host;
    size_t count; /* tensors */
    tw_tensor *tensors;
    size_t elements; /* in all of them */
    int paced;       /* option pace: 0 by gradients, 1 free */
    int survive;     /* option survive: go on without ranks that are lost (gossip_survive.c) */
    int adapt_first; /* synchronous: the step is added before the exchange, which then overlaps with nothing */
    tw_schedule schedule;
    tw_memory memories[TW_MOST_MEMORIES]; /* the weights, and what the scheme adds */
    size_t memory_count;
    uint64_t *counter; /* remembered, too: the scheme's steps, where it counts them; NULL: it does not */

    /* The communication thread's, once it runs. */
    tw_rumour rumour;
    unsigned char *outgoing;  /* this round's message, with the weights as they were */
    unsigned char **incoming; /* one a partner */
    size_t *received;         /* bytes of each */
    float **theirs;           /* the weights in each */
    int *partners;
    int most_partners;
    uint64_t round; /* the next one */
    tw_members members;
    tw_comm *group; /* what the view is of; NULL: the whole comm */
    int *ranks;     /* its ranks, as numbered in the whole */
    int concluded;  /* the weights are the consensus */
    double round_started;
    double distance; /* from the partners in the last round */

    tw_mutex lock; /* guards what stands below */
    tw_condition changed;
    int lock_made, condition_made, thread_made;
    tw_thread thread;
    tw_pass *last_pass; /* over the weights that has begun and not ended; NULL: none */
    float *weights;     /* memories[0]. Asynchronous schemes: in a pass only. Synchronous ones: the communication thread
                         * only reads them, in a task, and the worker changes them between tasks; without the lock */
    const float *shown; /* what read gives: the weights, unless the scheme says otherwise */
    /* The worker's alone: what read or step gave last, which is where the next step begins; NULL in hosts, whose values
     * are that, and once steps are given by themselves. */
    float *given;
    float **given_parts;  /* each tensor's */
    int was_read, adds;   /* given holds something; tw_gossip_add was called */
    int moves;            /* tw_gossip_step was */
    int made;             /* there is a gossip on all ranks */
    int begun, finishing; /* the caller has made its first call, its last */
    int ending;           /* synchronous: the last exchange is in the weights, and the mean has been asked for */
    int loaded;           /* begins with a saved state */
    int stopping;         /* destroy was called */
    int ended;            /* the communication thread does no more: finished or failed */
    tw_gossip_task task;
    double begun_at, added_at;
    double interval; /* this worker's smoothed seconds a gradient; 0: none yet */
    tw_status failure;
    char failure_text[512];
    tw_gossip_counts stats;
};

struct tw_gossip_ops {
    const char *name, *summary;
    size_t struct_size;       /* of the scheme's struct, which begins with a tw_gossip */
    const tw_option *options; /* offsets are into that struct */
    size_t option_count;
    /* Options, table and weights are set. Makes gossip->schedule where partners meet, and whatever else it needs. */
    tw_status (*create)(tw_gossip *gossip);
    void (*start)(tw_gossip *gossip);   /* (optional) All ranks have rank 0's weights. */
    void (*destroy)(tw_gossip *gossip); /* (optional) */

    /* Synchronous schemes only; NULL in the others. */
    /* What an exchange brings is among the memories: one under way is waited for before they are saved, and the one
     * after loading was made before saving. Else it only reads them, and is made again. */
    int remembers_exchange;
    /* On the communication thread: exchanges, without a change to the weights. */
    tw_status (*exchange)(tw_gossip *gossip);
    /* On the worker's thread: what the exchange brought goes into the weights. */
    void (*apply)(tw_gossip *gossip);
    /* (optional) Takes a step in; NULL, as steps, for one of zeros. Without it the step is added to the weights. */
    void (*absorb)(tw_gossip *gossip, const float *const *steps);
    /* (optional) After a step that was taken in, with adapt_first: whether an exchange follows. Without it, always. */
    int (*is_due)(const tw_gossip *gossip);
};

/* The comm that the gossip was made on, of all ranks, also where hosts have one of their own; NULL before there is one,
 * and where states are regrouped. */
tw_comm *tw_gossip_comm(const tw_gossip *gossip);
/* TW_ERROR_PEER once this rank has left that comm by itself. */
tw_status tw_gossip_check_left(const tw_gossip *gossip);
/* What every call on a gossip begins with: it is there, and this is the process that made it. */
tw_status tw_gossip_need(const tw_gossip *gossip);

/* The list of schemes, in gossip_list.c; NULL past the end. */
const tw_gossip_ops *tw_gossip_at(size_t index);

/* gossip_state.c: makes one of the things a scheme remembers, zeroed; tw_gossip_destroy frees it. */
tw_status tw_gossip_remember(tw_gossip *gossip, const char *what, float **values);
/* The same, of what rank `whose` remembers as `of`: both have the same bits. */
tw_status tw_gossip_remember_other(tw_gossip *gossip, const char *what, const char *of, int whose, float **values);
/* Reads what a state holds of `whose`, a tensor or a scheme; floats have to be finite. */
tw_status tw_gossip_get(const tw_state *state, const char *prefix, const char *what, const char *whose, tw_dtype dtype,
                        size_t count, void *values);

/* gossip_message.c: makes the schedule (schedule.h), and room for the messages of a round with its partners. */
tw_status tw_gossip_create_rounds(tw_gossip *gossip, int group, int shuffled, int64_t seed);
/* One such round, from the weights and back into them; of a synchronous scheme not back: *correction receives what has
 * to be added to them, or NULL if nothing has. */
tw_status tw_gossip_meet(tw_gossip *gossip, uint64_t round, const float **correction);
void tw_gossip_release_messages(tw_gossip *gossip);
float *tw_gossip_payload(const tw_gossip *gossip, unsigned char *message);

/* gossip_rounds.c and gossip_steps.c: what the communication thread runs, for asynchronous and synchronous schemes. */
void *tw_gossip_run_rounds(void *gossip);
void *tw_gossip_run_tasks(void *gossip);
/* An add of a synchronous scheme, with the lock held between what it does; steps = NULL: the step counts as zero. */
tw_status tw_gossip_take_step(tw_gossip *gossip, const float *const *steps);
/* Lets the scheme apply the exchange, with the lock given back for that time. */
void tw_gossip_settle(tw_gossip *gossip);
/* With the lock held: asks the communication thread for a task; waits until it has none, or until `end` on tw_clock(),
 * which may be INFINITY. */
void tw_gossip_ask(tw_gossip *gossip, tw_gossip_task task);
tw_status tw_gossip_await(tw_gossip *gossip);
tw_status tw_gossip_await_until(tw_gossip *gossip, double end);

/* gossip_survive.c: with the option survive. */
tw_status tw_gossip_survive(tw_gossip *gossip);
void tw_gossip_release_survivors(tw_gossip *gossip);
/* When, on tw_clock(), a thread that does not wait for messages should see to the others; and that. TW_ERROR_PEER when
 * one of them is lost. */
double tw_gossip_next_look(const tw_gossip *gossip);
tw_status tw_gossip_look(tw_gossip *gossip);
/* After a failure: TW_OK when it was the loss of ranks and those that are left have regrouped, or are concluded. */
tw_status tw_gossip_regroup(tw_gossip *gossip, tw_status failure);
/* After the last round: makes the weights the consensus, on all ranks or none. */
tw_status tw_gossip_conclude(tw_gossip *gossip);

/* gossip.c: for the communication thread, the schemes and hosts. */
/* weights += steps. */
void tw_gossip_add_steps(float *weights, const tw_gossip *gossip, const float *const *steps);
/* values becomes the mean over the ranks of the view: the sum in rank order, divided by their number. */
tw_status tw_gossip_mean(tw_gossip *gossip, float *values);
/* The communication thread has failed: its partners, and all others, are told by the end of the comm. But the first of
 * a host, who has to tell its members on that very comm: see gossip_host.c. */
void tw_gossip_give_up(tw_gossip *gossip, tw_status status);
/* With the lock held. The first waits until something may have changed, or until `end` on tw_clock(), which may be
 * INFINITY. */
void tw_gossip_sleep_until(tw_gossip *gossip, double end);
void tw_gossip_record_failure(tw_gossip *gossip, tw_status status);
/* What each of the worker's calls begins with: takes the lock, and starts the communication thread with the first. On
 * failure (the gossip failed, or is finished) the lock is free again. */
tw_status tw_gossip_enter(tw_gossip *gossip);
void tw_gossip_copy_out(const tw_gossip *gossip, const float *src, float *const *weights);
/* The public calls, for a rank that gossips, with arguments that have been checked. */
tw_status tw_gossip_read_alone(tw_gossip *gossip, float *const *weights);
tw_status tw_gossip_add_alone(tw_gossip *gossip, const float *const *steps);
tw_status tw_gossip_step_alone(tw_gossip *gossip, float *const *weights);
tw_status tw_gossip_finish_alone(tw_gossip *gossip, float *const *weights);
/* The same a part at a time: it waits for other workers' last steps for so many seconds at most, and is called again
 * until it is *over. */
tw_status tw_gossip_finish_within(tw_gossip *gossip, double seconds, float *const *weights, int *over);

#endif
