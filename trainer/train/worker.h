/* worker.h - one worker of a run: its model, its optimiser, its place among the ranks. */
#ifndef TRAINER_WORKER_H
#define TRAINER_WORKER_H

#include "changes.h"
#include "dump_gradients.h"
#include "optimiser.h"
#include "pager.h"
#include "schedule.h"
#include "settings.h"
#include "slowdown.h"
#include <thinwire/thinwire.h>

/* What a run adds up, on this worker, over all its resumptions. All are numbers below 2^53, so doubles hold them. */
typedef enum total {
    TOTAL_BYTES_DENSE,
    TOTAL_BYTES_SENT,
    TOTAL_BYTES_RECEIVED,
    TOTAL_COMPRESSED_FP32,
    TOTAL_COMPRESSED_PACKET,
    TOTAL_MESSAGE_FP32,
    TOTAL_MESSAGE_PACKET,
    TOTAL_ELEMENTS_SENT,
    TOTAL_ELEMENTS,
    TOTAL_STEPS_SKIPPED,
    TOTAL_ITEMS, /* images, or what the task has in their place */
    TOTAL_SECONDS_WALL,
    TOTAL_SECONDS_TRAINING, /* wall without evaluation and checkpoints */
    TOTAL_SECONDS_COMPUTE,  /* forward and backward */
    TOTAL_SECONDS_PASS,     /* the same without what --slow and --pause add */
    TOTAL_SQUARES_PASS,     /* half the square of what it differs by from the step before */
    TOTAL_SECONDS_CODEC,
    TOTAL_SECONDS_EXCHANGE,
    TOTAL_SECONDS_WAIT,
    TOTAL_BYTES_BETWEEN, /* of those sent, between hosts; a checkpoint of version 0.1 does not have it */
    TOTAL_SECONDS_DATA,  /* of those that computing took: waiting for data. Older checkpoints do not have it either */
    TOTAL_COUNT
} total;

typedef struct totals {
    double values[TOTAL_COUNT];
} totals;

typedef struct evaluation {
    task_split split;
    task_score score;  /* of the whole split */
    double loss;       /* mean over it */
    double train_loss; /* mean over the training data since the epoch began, as it was met;
                        * batches whose loss was not finite are left out */
    int own;           /* of rank 0's weights and data alone, not the run's */
    uint64_t step;     /* whose weights they are; by gossip, where each is at its own, rank 0's */
    int is_cut;        /* the run is asked to stop, so some of the split may be left out */
} evaluation;

/* The best figures of the validation set so far: see best.h. */
typedef struct best_checkpoint {
    uint64_t step;   /* whose weights had them; 0: there are none */
    uint64_t folder; /* the step in the name of its checkpoint: another one until best_rename */
    task_score score;
} best_checkpoint;

/* The weights that adapters are trained beside: see base.h. */
typedef struct base_weights {
    char path[4096], sum[16], network[TASK_NETWORK_TEXT]; /* its text TASK_NETWORK; "" in files of the first versions */
} base_weights;

enum { RUN_NAME = 17 }; /* 16 digits of a hexadecimal number */

typedef struct worker {
    train_settings settings; /* resolved: momentum and its form are the scheme's where it applies them */
    const task *task;
    tw_comm *comm;
    int rank, size;

    learner *learner;
    optimiser *optimiser;
    const struct exchange *exchange; /* how it comes to agree with the others; */
    void *way;                       /* what that keeps */
    pager *pager;                    /* of --memory-budget; NULL: all is in memory */
    char *sync_in_full;              /* see scheme_in_full; settings.sync_in_full */
    char *sync_as_run;               /* settings.sync_as_run */
    run_changes changes;             /* settings.planned_changes; */
    char *changes_text;              /* that text, where this worker wrote it: worker_keep_changes */
    const char *sync;                /* the spec in force: settings.sync, or one of the changes */
    char *spec;                      /* the same as the run's length has it: see scheme_for_run; */
    char *spec_in_full;              /* and with every option of its scheme, before the exchange is made */
    float *pending;                  /* of a way before, for the next good step: see worker_switch. NULL: nothing */
    char *chosen_out;                /* settings.out, where the run chose its folder itself */
    /* The length that this worker's own gradient is clipped to, before anything is held back of it, averaged or stepped
     * along. 0: none. Where a scheme sends all there is, the mean is clipped instead, to settings.clip. Gradients of N
     * workers that have little in common are longer than their mean by the root of N (Lin et al. 2018, section 3.2). */
    double own_clip;
    double scheme_warmup; /* steps until the scheme sends what it will send in the long run */
    double scheme_every;  /* steps of a round; NaN: the scheme has no such option */
    int synchronous;      /* all workers take a step together, by gossip too */
    schedule schedule;
    slowdown slowdown;

    uint64_t steps_per_epoch, steps;
    uint64_t step; /* how many are done: the next step's number */
    uint64_t rest; /* the next after which something else is done with the weights */
    /* Where workers come and go: rounds that have come about, by all workers; steps of its own that no round has yet;
     * and whether some worker has such steps, so that the exchange begins with a round. */
    uint64_t rounds, taken;
    int owes;
    float *mean_buffers; /* the learner's buffers, averaged over the workers: see worker_average_buffers */

    /* In a simulation: what lets time pass as a gradient becomes ready; and in a stage, when it has computed a part of
     * a micro-batch's pass. NULL: it passes by itself. */
    void (*gradient_ready)(void *pace);
    void (*part_passed)(void *pace, uint64_t batch, double part);
    void *pace;

    gradient_dump dump; /* the same steps on every rank; rank 0 keeps them */

    int first_on_disk; /* this worker writes what is to be there once on each disk: see disk.h */

    double last_pass; /* seconds; 0 before the second step: the first is like no other */

    base_weights base; /* of a learner that has one; the same on all ranks */

    int unseen; /* what an evaluation left out is still to be looked at: the same on all ranks, and in a checkpoint */

    best_checkpoint best; /* what models are chosen by, where the task has a validation set */
    uint64_t judged; /* the step whose weights the learner has, once the run is over and they are the best; else 0 */
    uint32_t last_checksum; /* of the weights that they replaced */

    task_score step_score;  /* this worker's of the last step */
    task_score epoch_score; /* this worker's training data of the epoch that the last step was in */
    int skipped_in_a_row;
    int spoilt;         /* by gossip: this worker has diverged, and wants all to stop */
    int stops;          /* this worker wants all to save and stop: rank 0, when it cannot write its journal */
    char run[RUN_NAME]; /* which run the checkpoints are of; "" before the first */
    totals before;      /* brought from the checkpoint */
    double summed_sent, summed_received; /* bytes of what worker_sum added up, in this process */
    totals now;                          /* since this process began, without what the exchange under way counts */
    double started;
    int agreed;   /* the failure is known to every rank; rank 0 tells it */
    int diverged; /* replicas differ */
} worker;

/* Makes everything a worker needs, from initial weights on; every rank calls it. The three are borrowed. */
tw_status worker_create(const train_settings *settings, const task *work, tw_comm *comm, worker *w);
void worker_release(worker *w);

/* The workers begin from rank 0's weights, and end with the same weights: see exchange.h. */
tw_status worker_begin(worker *w);
tw_status worker_end(worker *w);
/* What a file says that the run has changed to, which may be anybody's: each spec has to be one that can be left. */
tw_status worker_read_changes(const worker *w, const char *text, run_changes *changes);
/* w->changes become settings.planned_changes. */
tw_status worker_keep_changes(worker *w);
/* The way that made the step before `step`. */
const struct exchange *worker_way_before(const worker *w, const run_changes *changes, uint64_t step);
/* Goes on by another spec, between two steps at which all meet: a collective. What local steps came to is given to the
 * others first. What the scheme held back of gradients goes through the next one in a step of its own, and the means
 * that come out into those of the next good step; before local steps it goes into this worker's own gradients. Where
 * workers had moments of their own, all go on with their mean. TW_ERROR_UNSUPPORTED where one of the two specs cannot
 * be left: tw_plan_can_switch. */
tw_status worker_switch(worker *w, const char *sync);
/* The same for a worker that has not begun, and loads what the spec remembers. */
tw_status worker_take_spec(worker *w, const char *sync);
/* Where each has weights of its own, and all are at the same step: the shared ones, and its own again. */
tw_status worker_show_shared(worker *w);
tw_status worker_show_own(worker *w);
/* What the learner and the optimiser show, parameters and momentum, becomes what it is now: before it is looked at as a
 * whole. A collective; of a pipeline's it is rank 0's. */
tw_status worker_settle(worker *w);
/* Rank 0's parameters and running statistics become all workers', after they were written as a whole, other than before
 * worker_begin. A collective. */
tw_status worker_share(worker *w);
/* The checksum of the weights, when they are settled. */
uint32_t worker_checksum(const worker *w);
/* Settles the weights and compares them over the ranks; TW_ERROR_STATE, and w->diverged, when a replica differs. */
tw_status worker_check_replicas(worker *w);
/* Of a regrouped run: the optimiser of the worker in whose place this one is, where that is there; without it, it
 * begins anew. */
tw_status worker_take_optimiser(const worker *w, int workers, tw_state_source source, void *context);
/* The model's weights become what they are now, after what others' have done to them. */
tw_status worker_read(worker *w);

/* Settles which steps' gradients are kept, of those still to come, and makes the folder. */
tw_status worker_plan_dump(worker *w);

/* Each worker keeps batch-norm's running statistics of the images it saw; for evaluation, and in the model file of a
 * checkpoint, their mean over the workers stands. Leaves it in w->mean_buffers, on every rank. */
tw_status worker_average_buffers(worker *w);

/* Adds up over all workers, and counts the bytes: `context` is a worker. Nothing else of it is on its way meanwhile: a
 * reducer's messages follow, when gradients are ready. */
tw_status worker_sum(void *context, float *values, size_t count);
/* Whether the learner may do so: see learner.sum. */
void worker_let_sum(worker *w, int allowed);

/* What a --sync is for this run, malloc'd: with what follows from its length, and with its optimiser's moments. */
tw_status worker_spec(const worker *w, const char *sync, char **spec);

/* This worker's sums up to now. */
tw_status worker_totals(const worker *w, totals *sums);

/* What one worker saw: of its part of a split, and of the epoch's training data. */
typedef struct evaluation_share {
    task_score split, train;
    double stops; /* whether this worker is asked to stop */
} evaluation_share;

/* A split's loss and metrics, each worker over its part, counts summed exactly; the same on every rank. It is the other
 * two, one after the other. */
tw_status worker_look(worker *w, task_split split, evaluation_share *own);
tw_status worker_gather_looks(worker *w, task_split split, const evaluation_share *own, evaluation *result);
tw_status worker_evaluate(worker *w, task_split split, evaluation *result);
/* The same of this worker's own weights and statistics, over the whole split, with nobody's help. */
tw_status worker_evaluate_own(worker *w, task_split split, evaluation *result);

/* What happens to tensor `index` on its way to the others, in a few words. */
const char *worker_plan(const worker *w, size_t index);

/* For when there is no point in going on: TW_ERROR_NONFINITE, saying what was seen and what may help. */
tw_status worker_diverged(const worker *w, const char *seen);
/* The same, of steps that were skipped one after the other. */
tw_status worker_spoilt(const worker *w);

/* One more step; worker.step counts on. A step skipped for NaN or infinity is no failure until ten follow each other
 * (TW_ERROR_NONFINITE; by gossip it is told in worker.spoilt, so that all may end in good order). `loss` is this
 * worker's own mean over its batch. */
tw_status worker_step(worker *w, double *loss);

#endif
