/* exchange.h - how the workers of a run come to agree. A way is a table of functions. To add one, write a file with a
 * table, NAME_exchange, and name it in EXCHANGES. */
#ifndef TRAINER_EXCHANGE_H
#define TRAINER_EXCHANGE_H

#include "worker.h"

/* The ways there are. */
#define EXCHANGES(X)                                                                                                   \
    X(gradients)                                                                                                       \
    X(weights)                                                                                                         \
    X(updates)

/* The schemes that go one way, counted from 0, as the library lists them and those of plug-ins. */
typedef struct scheme_list {
    const char *what; /* workers exchange: "gradients" */
    size_t (*count)(void);
    const char *(*name)(size_t scheme);
    const char *(*summary)(size_t scheme);
    size_t (*option_count)(size_t scheme);
    tw_status (*option)(size_t scheme, size_t number, tw_option_info *option);
    size_t (*help)(size_t scheme, char *text, size_t capacity); /* NULL: its name and summary are its page */
    int (*is_experimental)(size_t scheme);                      /* NULL: each of them is */
    int (*is_synchronous)(size_t scheme); /* whether all workers take a step together; NULL: with each of them */
} scheme_list;

/* Of local updates: counts of rounds, and figures of the last one, as in tw_outer_counts. */
typedef struct round_figures {
    double rounds, empty, unstable;
    double cosine, gain, energy;
} round_figures;

/* Every rank calls all functions. begin, apply, plan and add_totals must be there, and destroy where bytes is not 0. Of
 * the others those that have nothing to do are NULL; without regroup a checkpoint is resumed by as many workers only.
 */
typedef struct exchange {
    scheme_list schemes;
    /* 1: after every step all ranks have the same weights and momentum. 0: from begin to end each has its own, and may
     * be at a step of its own. */
    int replicas;
    /* 1: each has weights of its own, but all are at the same step: from begin to end there are shared weights, too. */
    int side_by_side;
    /* 1: each holds a part of one network, and what it shows of the rest means nothing. They are called replicas all
     * the same: all are at one step, and after settle rank 0 has what each replica would have. */
    int staged;
    int counts_hosts; /* add_totals knows which bytes went between hosts */
    size_t bytes;     /* of what it keeps in worker.way, which begins as zeros */

    /* TW_ERROR_ARGUMENT where an option of the run means nothing here. */
    tw_status (*check)(const worker *w);
    /* Makes what the run needs from its start to its end. A collective. */
    tw_status (*create)(worker *w);
    void (*destroy)(worker *w); /* also when create failed half way, or was not called */
    /* The momentum that the scheme applies itself, and whether in Nesterov's form; 0 where it leaves it to the
     * optimiser. */
    float (*momentum)(const worker *w, int *nesterov);

    /* The workers begin from rank 0's weights, and go on until end: a run has several such stretches where checkpoints
     * are between them. Collectives. After end all ranks have the same weights; lost workers may then be left out of
     * w->comm, and ranks be new. */
    tw_status (*begin)(worker *w);
    tw_status (*end)(worker *w);

    /* side_by_side: the model's weights become the shared ones, the same bits on all ranks, to be looked at and saved;
     * and this worker's own again. Between the two every rank calls nothing else but save. */
    tw_status (*show_shared)(worker *w);
    tw_status (*show_own)(worker *w);
    /* What the learner and the optimiser show, parameters and momentum, becomes what it is now, where it stands
     * somewhere else: on each rank, of stages on rank 0. Then rank 0's, running statistics too, become all ranks'.
     * NULL: they are the learner's own, or in the file of its pager. Collectives. */
    tw_status (*settle)(worker *w);
    tw_status (*share)(worker *w);
    /* The running statistics that are a stage's own. */
    void (*statistics)(const worker *w, size_t *begin, size_t *end);
    /* An evaluation by all of them has come to its last batch: what they still have to hear of each other about it. */
    tw_status (*looked)(worker *w);
    /* Whether all meet in the step to come: only then is there talk of anything else. */
    int (*meets)(const worker *w);

    /* A step: the model's weights become what they are now; the scheme hears the rate; it gets every gradient when that
     * is complete; then the step is applied, or TW_SKIPPED where neither weights nor momentum have felt it. */
    tw_status (*read)(worker *w);
    tw_status (*set_rate)(worker *w, float rate);
    /* Forward and backward, which then submits nothing, and how many seconds of it this worker has waited for others;
     * NULL: as the task does it, which waits for nobody. */
    tw_status (*pass)(worker *w, task_score *score, double *waited);
    tw_status (*submit)(worker *w, size_t index, float *gradient);
    tw_status (*apply)(worker *w, float rate);

    /* What happens to tensor `index` on its way to the others, in a few words. */
    const char *(*plan)(const worker *w, size_t index);
    /* Adds what is counted and not yet in worker.now. */
    tw_status (*add_totals)(const worker *w, totals *sums);
    /* NULL: there are no rounds. */
    tw_status (*last_round)(const worker *w, round_figures *figures);

    /* Between two steps: adds to the gradients, one array a tensor, what of this worker's has not been sent yet. NULL:
     * nothing is held back. */
    tw_status (*hand_over)(worker *w, float *const *gradients);
    /* In a step of its own, takes what the way before had not sent, and gives the means, the same on all workers. What
     * is left of it is then in this way's memory. NULL: each adds its own to the gradients of its next step. */
    tw_status (*take_over)(worker *w, float *const *gradients);

    /* Where workers come and go: what a worker that leaves still holds back, into `held`; and one that stays takes it
     * in, whole. NULL: nothing is held back from one generation to the next. */
    tw_status (*give_held)(const worker *w, tw_state *held);
    tw_status (*take_held)(worker *w, const tw_state *held);
    /* For a worker that the group went on without: of `own`, where it was then, what nobody else has is put into the
     * state that is given to it. NULL: nothing. */
    tw_status (*bring)(const worker *w, const char *prefix, const tw_state *own, tw_state *given);

    /* What is a worker's own beside its optimiser, into and out of its file of a checkpoint. */
    tw_status (*save)(worker *w, const char *prefix, tw_state *state);
    tw_status (*load)(worker *w, const char *prefix, const tw_state *state);
    /* Takes over what `workers` others have saved, whose states `source` gives, by way of `state`, which is empty.
     * NULL: each worker's is left with it. */
    tw_status (*regroup)(worker *w, int workers, const char *prefix, tw_state_source source, void *context,
                         tw_state *state);
} exchange;

/* What the counts of a reducer and of an outer loop both have, for add_totals. `v`: the values of totals. */
#define EXCHANGE_ADD_COUNTS(v, counts)                                                                                 \
    do {                                                                                                               \
        (v)[TOTAL_BYTES_DENSE] += (double)(counts)->bytes_dense;                                                       \
        (v)[TOTAL_BYTES_SENT] += (double)(counts)->bytes_sent;                                                         \
        (v)[TOTAL_BYTES_RECEIVED] += (double)(counts)->bytes_received;                                                 \
        (v)[TOTAL_BYTES_BETWEEN] += (double)(counts)->bytes_between;                                                   \
        (v)[TOTAL_COMPRESSED_FP32] += (double)(counts)->compressed_fp32;                                               \
        (v)[TOTAL_COMPRESSED_PACKET] += (double)(counts)->compressed_packet;                                           \
        (v)[TOTAL_MESSAGE_FP32] += (double)(counts)->message_fp32;                                                     \
        (v)[TOTAL_MESSAGE_PACKET] += (double)(counts)->message_packet;                                                 \
        (v)[TOTAL_ELEMENTS_SENT] += (double)(counts)->elements_sent;                                                   \
        (v)[TOTAL_ELEMENTS] += (double)(counts)->elements_total;                                                       \
        (v)[TOTAL_SECONDS_CODEC] += (counts)->seconds_codec;                                                           \
        (v)[TOTAL_SECONDS_EXCHANGE] += (counts)->seconds_exchange;                                                     \
        (v)[TOTAL_SECONDS_WAIT] += (counts)->seconds_wait;                                                             \
    } while (0)

/* NULL past the end. */
const exchange *exchange_at(size_t index);
/* The one whose scheme a spec, "dgc:density=0.001", begins with, and which of its schemes that is; NULL: there is none.
 */
const exchange *exchange_find(const char *spec, size_t *scheme);
int exchange_is_synchronous(const exchange *e, size_t scheme);

#endif
