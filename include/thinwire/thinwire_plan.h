/* thinwire_plan.h - which way of exchanging suits a network, an optimiser and a line.
 *
 * EXPERIMENTAL: it works and is tested as the rest is, and may still change with a release (docs/abi.md).
 *
 *     tw_world_options line = {.struct_size = sizeof line};
 *     tw_line_read("100Mbit,1ms", &line);
 *     tw_plan_question question = {.struct_size = sizeof question, .tensors = table, .tensor_count = count,
 *                                  .workers = 4, .optimizer = TW_PLAN_ADAMW, .steps = 20000, .pass_seconds = 0.12,
 *                                  .bandwidth = line.bandwidth, .latency = line.latency, .simulate = tw_world_play};
 *     tw_plan_make(&question, &plan);
 *     tw_plan_row_at(plan, tw_plan_choice(plan), &row);         // row.spec is what to use
 *     tw_plan_destroy(plan);
 */
#ifndef THINWIRE_PLAN_H
#define THINWIRE_PLAN_H

#include <thinwire/thinwire_sim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a line in words --------------------------------------------------------------------------------------------- */

/* "1Gbit,0.1ms", or with another rate towards the host, "10Mbit/100Mbit,80ms": bandwidth, bandwidth_down and latency.
 * TW_ERROR_ARGUMENT for any other text, which it begins with. */
TW_API tw_status tw_line_read(const char *text, tw_world_options *line);
/* The same words for what a world has. Returns what snprintf would. */
TW_API size_t tw_line_text(const tw_world_options *line, char *text, size_t capacity);

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

typedef enum tw_plan_optimizer { TW_PLAN_SGD = 0, TW_PLAN_ADAM = 1, TW_PLAN_ADAMW = 2 } tw_plan_optimizer;

/* What a candidate exchanges: an object of thinwire.h, thinwire_gossip.h or thinwire_outer.h takes its spec. */
typedef enum tw_plan_kind { TW_PLAN_GRADIENTS = 1, TW_PLAN_WEIGHTS = 2, TW_PLAN_UPDATES = 4 } tw_plan_kind;

/* Each is played for each candidate, and so many take minutes. */
#define TW_PLAN_WORKERS_MOST 128

typedef struct tw_plan_question {
    size_t struct_size; /* sizeof(tw_plan_question) */
    const tw_tensor *tensors;
    size_t tensor_count;
    int workers; /* 2 to TW_PLAN_WORKERS_MOST */
    tw_plan_optimizer optimizer;
    int kinds;      /* that may be chosen, added up; 0: any. allreduce stays in the table */
    int unmeasured; /* 1: a candidate may be chosen though nobody has measured what it costs in a run of this length */
    int keeps_momentum; /* 1: the optimiser applies its own, and a scheme that applies some is left out */
    uint64_t steps;     /* of the run */
    uint64_t seed;
    double pass_seconds;                       /* of a forward and backward pass of one worker */
    double other_seconds;                      /* of a step beside it: loading the batch, the optimiser */
    double bandwidth, bandwidth_down, latency; /* of each worker's line, as in tw_world_options */
    double codec_rate;     /* bytes a second at which schemes pass over memory; 0: each is timed on this machine */
    const double *factors; /* how many times as long a pass takes, for each worker; NULL: all are alike */
    size_t elements;       /* a larger table is thinned out to some so many; 0: 4 million */
    void (*told)(void *context, const char *line); /* gets a line for each candidate; NULL: none does */
    void *context;
    int goes_on;  /* 1: a run under way would go on with it, and what tw_plan_can_switch refuses is left out */
    int adapters; /* 1: what is trained are adapters beside a network that stays, such as LoRA's. With Adam and AdamW
                     candidates then cost what they cost there */
    /* tw_world_play, whose library, libthinwire_sim, the program links: this one runs no worlds itself. Or what does
     * the same. */
    tw_status (*simulate)(const tw_world_options *options, tw_world_worker worker, void *context);
} tw_plan_question;

typedef struct tw_plan tw_plan;

/* Times each candidate's codec on one thread of this machine, and predicts its step: the scheme's own code exchanges
 * noise of the tensors' shapes in a world of virtual time (`simulate`). Of a table that is thinned out, one k-th of
 * the tensors exchange over a line that is k times as slow, and their codec takes k times as long. What a candidate
 * costs in steps to the same loss is known from runs that docs/planning.md names. The choice is the shortest time to
 * the same loss; of those within 5 % the first of the list, where the simple ones stand.
 * TW_ERROR_ARGUMENT for what cannot be planned, and where no candidate of these kinds may be chosen. */
TW_API tw_status tw_plan_make(const tw_plan_question *question, tw_plan **plan);
TW_API void tw_plan_destroy(tw_plan *plan);

typedef struct tw_plan_row {
    size_t struct_size;   /* sizeof(tw_plan_row) */
    const char *spec;     /* these four as long as the plan */
    const char *left_out; /* why it cannot be taken; NULL: it can, and what follows is known */
    const char *seen;     /* what is known of the steps that it takes more, in a few words; NULL: it was not measured */
    const char *page;     /* that has it */
    tw_plan_kind kind;
    double extra;          /* steps that it takes more, as a share of them; NaN: unknown */
    double step_seconds;   /* of a worker, on average over the run and its end */
    double utilisation;    /* the share of it that computes */
    double bytes_per_step; /* that a worker sends */
    double memory_bytes;   /* that the exchange takes on a worker, without peers; NaN: unknown */
    double codec_seconds;  /* of a step, measured on one thread */
    double target_seconds; /* step_seconds as long as it takes more steps */
    double end_seconds;    /* of the run, after its last step: what is still to be shared then */
} tw_plan_row;

TW_API size_t tw_plan_count(const tw_plan *plan);
/* TW_ERROR_ARGUMENT past the end. */
TW_API tw_status tw_plan_row_at(const tw_plan *plan, size_t index, tw_plan_row *row);
/* The row that is chosen, and why, in a sentence or two. */
TW_API size_t tw_plan_choice(const tw_plan *plan);
TW_API const char *tw_plan_why(const tw_plan *plan);
/* All of it, as lines of a table and a sentence. Returns what snprintf would. */
TW_API size_t tw_plan_text(const tw_plan *plan, char *text, size_t capacity);

/* What a worker sends in a step by any spec, on average over whole rounds and behind its warm-up, predicted as for a
 * row. The question's steps are those of a round; its optimizer and what follows from it do not count. */
TW_API tw_status tw_plan_bytes(const tw_plan_question *question, const char *spec, double *bytes);

/* Whether a run can leave this spec between two steps, or come to it, and what it would still have sent of a rank's
 * gradients goes on (tw_reducer_hand_over). What else it remembers is dropped, such as the outer momentum of diloco or
 * the factors of powersgd; and what a scheme drops by a rule of its own, as scalecom does by its filter and chunktopk
 * by its decay, was gone before. TW_ERROR_UNSUPPORTED says why not: the scheme has moments of its own, or the workers
 * are at steps of their own, or local updates are held back. TW_ERROR_SPEC where there is none of that name. */
TW_API tw_status tw_plan_can_switch(const char *spec);

/* What a reducer has not sent yet of this rank's gradients: adds it to gradients[i], tw_tensor_count() floats, for each
 * tensor i, in the measure of a gradient, not of a mean. Of a host (per_host) its first rank has all of it.
 *
 * All ranks give it to another reducer in a step of its own, and add the means that come out to those of the next step
 * that is not skipped. Nothing is lost so: what that reducer has not sent is in its own residual. Who added it to the
 * gradients of a step instead could not repeat that if the step is TW_SKIPPED, of which some ranks keep what they gave
 * and others do not.
 *
 * Between steps only (TW_ERROR_ORDER); the reducer is as before, and to be destroyed. TW_ERROR_UNSUPPORTED where the
 * scheme applies momentum. */
TW_API tw_status tw_reducer_hand_over(tw_reducer *reducer, float *const *gradients);

/* ---- a line that changes ----------------------------------------------------------------------------------------- */

/* Says when a line has become another, by the time of exchanges that happen anyway; it measures nothing itself. Each
 * rank has one, and tells it of each exchange. Once in a window of them the ranks gather the middle ones, and all judge
 * alike.
 *
 *     if (tw_watch_add(watch, bytes, seconds, own)) {
 *         tw_comm_allgather(comm, own, sizeof own, all);
 *         slower = tw_watch_judge(watch, all, size);
 *     }
 */
typedef struct tw_watch tw_watch;

/* `window`: exchanges, 3 to 1000. */
TW_API tw_status tw_watch_create(size_t window, tw_watch **watch);
TW_API void tw_watch_destroy(tw_watch *watch);
/* An exchange in which this rank has sent so many bytes, and was on the wire, or waiting for peers, for so many
 * seconds: what a reducer counts as seconds_exchange. Each call counts as one, on every rank, and what is below 0, or
 * no number, as 0. 1: the window is full, and `middle`, of two numbers, has the median of the bytes and that of the
 * seconds. */
TW_API int tw_watch_add(tw_watch *watch, double bytes, double seconds, double *middle);
/* Of all ranks' middles, rank after rank: how many times as slow as before the line is, where two windows in a row say
 * that it is twice as slow or as fast, or more; from then on that is what it was before. Else 1. The rank that waits
 * least counts, as it waits for no other rank. The first window is only to warm up, and the second has what is
 * compared; where the bytes of an exchange change by a quarter, that begins anew. */
TW_API double tw_watch_judge(tw_watch *watch, const double *middles, int ranks);

/* ---- a worker without a network ---------------------------------------------------------------------------------- */

/* Takes steps through the reducer, the gossip or the outer loop of any spec, whose gradients are noise: every rank and
 * step has its own, cut out of one long strip at a place that is drawn for it. */
typedef struct tw_phantom tw_phantom;

/* The strip has twice the elements of the table and TW_NOISE_MARGIN more; all ranks may share it. */
#define TW_NOISE_MARGIN 16
TW_API tw_status tw_phantom_noise(float *noise, size_t count, uint64_t seed);

/* A collective. Table and noise are borrowed until destroy. */
TW_API tw_status tw_phantom_create(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count,
                                   const float *noise, uint64_t seed, tw_phantom **phantom);
TW_API void tw_phantom_destroy(tw_phantom *phantom);

/* One step. `ready` is called before each gradient is there, once a tensor, and lets the time of a pass go by; NULL:
 * there is no pass. A step that was skipped is TW_OK: nobody applies it. */
typedef void (*tw_phantom_ready)(void *context);
TW_API tw_status tw_phantom_step(tw_phantom *phantom, uint64_t number, tw_phantom_ready ready, void *context);

/* Ends what the spec began. *distance receives how far, L2, this rank's weights were from the shared ones; 0 where
 * gradients travel. NULL: not wanted. */
TW_API tw_status tw_phantom_finish(tw_phantom *phantom, double *distance);

/* What `ready` may call as gradient number `ready` of so many (1 .. tensors) is there: in a world lets that part of a
 * pass of `seconds` go by, a third of it before the first gradient and the rest evenly over all. */
TW_API void tw_phantom_pass(double seconds, size_t ready, size_t tensors);

#ifdef __cplusplus
}
#endif
#endif
