/* All workers of a run in a world of virtual time, for a few steps. */
#include "error.h"
#include "memory.h"
#include "plan.h"
#include "thread.h"

#include <math.h>
#include <stdio.h>
#include <thinwire/thinwire_by_hand.h>

#define PATIENCE 1e9     /* virtual seconds a worker waits for another: nobody is lost */
#define MEMORY_RATE 10e9 /* bytes a second at which what came from others is added: the simulator's own figure */
#define BYTE_TOUCHES 4   /* of each byte that came from others */
enum { REDUCER_STEPS = 2, GOSSIP_STEPS = 16, ROUNDS = 2, GOSSIP_BYTES = 24, MEAN_BYTES = 8 };

/* The run as all ranks see it: one thread at a time runs, so nothing here needs a lock. */
typedef struct trip {
    const tw_plan_question *question;
    const tw_thin *thin;
    const float *noise;
    const char *spec;
    double times; /* that more is sent of the whole table */
    uint64_t steps;
    int cut;               /* the run ends amid a round */
    double start, seconds; /* when all begin; and what all workers' steps took, added up */
    double end_seconds;    /* what their ends took */
    uint64_t bytes, end_bytes;
    tw_status status;
    char text[512];
} trip;

typedef struct pass {
    double seconds;
    size_t ready, tensors;
} pass;

static void gradient_ready(void *context)
{
    pass *p = context;
    tw_phantom_pass(p->seconds, p->ready % p->tensors + 1, p->tensors);
    p->ready++;
}

static uint64_t sent_so_far(const tw_comm *comm)
{
    tw_traffic traffic = {.struct_size = sizeof traffic};
    tw_comm_traffic(comm, &traffic);
    return traffic.bytes_sent;
}

/* After what building took, all ranks begin at the same moment. */
static tw_status line_up(trip *t, int rank, tw_comm *comm)
{
    TW_TRY(tw_comm_barrier(comm));
    if (rank == 0) t->start = tw_clock() + 1 + 1e3 * t->question->latency;
    TW_TRY(tw_comm_barrier(comm));
    tw_let_pass(t->start - tw_clock());
    return TW_OK;
}

/* What is still to be shared when the last step is taken: where parts meet in turn, all of them once more. */
static tw_status trip_end(trip *t, tw_comm *comm, tw_phantom *phantom)
{
    if (t->cut) TW_TRY(tw_phantom_step(phantom, t->steps, NULL, NULL));
    TW_TRY(tw_comm_barrier(comm));
    double begun = tw_clock();
    uint64_t sent = sent_so_far(comm);
    TW_TRY(tw_phantom_finish(phantom, NULL));
    t->end_seconds += tw_clock() - begun;
    t->end_bytes += sent_so_far(comm) - sent;
    return TW_OK;
}

static tw_status trip_steps(trip *t, int rank, tw_comm *comm, tw_phantom *phantom)
{
    const tw_plan_question *q = t->question;
    pass p = {q->pass_seconds * (q->factors ? q->factors[rank] : 1), 0, t->thin->count};
    TW_TRY(line_up(t, rank, comm));
    double begun = tw_clock();
    uint64_t sent = sent_so_far(comm);
    for (uint64_t step = 0; step < t->steps; step++) {
        tw_let_pass(q->other_seconds);
        TW_TRY(tw_phantom_step(phantom, step, gradient_ready, &p));
    }
    t->seconds += tw_clock() - begun;
    t->bytes += sent_so_far(comm) - sent;
    return trip_end(t, comm, phantom);
}

static void play(void *context, int rank, tw_comm *comm)
{
    trip *t = context;
    tw_phantom *phantom = NULL;
    tw_status status = tw_comm_set_timeout(comm, PATIENCE);
    if (status == TW_OK)
        status =
            tw_phantom_create(comm, t->spec, t->thin->tensors, t->thin->count, t->noise, t->question->seed, &phantom);
    if (status == TW_OK) status = trip_steps(t, rank, comm, phantom);
    if (status != TW_OK &&
        (t->status == TW_OK || t->status == TW_ERROR_PEER)) { /* a loss of peers is another's failure */
        t->status = status;
        snprintf(t->text, sizeof t->text, "%s", tw_last_error());
    }
    tw_phantom_destroy(phantom);
}

static double bytes_touched(const char *spec)
{
    const unsigned bytes = tw_spec_floor_bytes(spec);
    return bytes ? bytes + MEAN_BYTES : GOSSIP_BYTES;
}

/* The line is as much slower as less is sent, and so is memory. */
static tw_world_options world_of(const trip *t, double codec_seconds)
{
    const tw_plan_question *q = t->question;
    double times = t->times, rate = q->codec_rate > 0 ? q->codec_rate : MEMORY_RATE;
    double element_seconds = q->codec_rate > 0 || codec_seconds == 0 ? t->thin->times * bytes_touched(t->spec) / rate
                                                                     : codec_seconds / (double)t->thin->elements;
    return (tw_world_options){.struct_size = sizeof(tw_world_options),
                              .workers = q->workers,
                              .bandwidth = q->bandwidth / times,
                              .bandwidth_down = q->bandwidth_down / times,
                              .latency = q->latency,
                              .element_seconds = element_seconds,
                              .byte_seconds = times * BYTE_TOUCHES / rate};
}

static tw_status trip_run(trip *t, double codec_seconds)
{
    const tw_world_options options = world_of(t, codec_seconds);
    TW_TRY(t->question->simulate(&options, play, t));
    return t->status == TW_OK ? TW_OK : tw_fail(t->status, "%s", t->text);
}

/* Steps that are counted; and the share of the run's steps that are in whole rounds. */
static tw_status steps_to_take(const char *spec, trip *t, uint64_t *counted, double *whole)
{
    tw_plan_kind kind;
    double fragments = tw_spec_number(spec, "fragments"), every = tw_spec_number(spec, "every");
    TW_TRY(tw_spec_kind(spec, &kind));
    *counted = kind == TW_PLAN_UPDATES   ? ROUNDS * (uint64_t)every
               : kind == TW_PLAN_WEIGHTS ? GOSSIP_STEPS
                                         : REDUCER_STEPS;
    double steps = (double)t->question->steps, round = kind == TW_PLAN_UPDATES ? every / fmax(1, fragments) : 1;
    *whole = floor(steps / round) * round / steps;
    t->cut = *whole < 1;
    return TW_OK;
}

tw_status tw_predict(const tw_plan_question *q, const tw_thin *thin, const float *noise, const char *spec,
                     double codec_seconds, tw_prediction *prediction)
{
    uint64_t counted;
    char *smaller;
    trip t = {.question = q, .thin = thin, .noise = noise};
    double whole, delay = fmax(0, tw_spec_number(spec, "delay")); /* so many steps later the last exchange ends */
    TW_TRY(steps_to_take(spec, &t, &counted, &whole));
    TW_TRY(tw_spec_times(spec, q->tensors, q->tensor_count, thin, &t.times));
    TW_TRY(tw_spec_with_smaller_messages(spec, q->tensors, q->tensor_count, thin->times, &smaller));
    t.spec = smaller;
    t.steps = counted + (uint64_t)delay;
    tw_status status = trip_run(&t, codec_seconds);
    tw_free(smaller);
    TW_TRY(status);
    double workers = q->workers, steps = (double)counted, alone = q->pass_seconds + q->other_seconds;
    double exchange = t.seconds / workers - (steps + delay) * alone;
    *prediction = (tw_prediction){.step_seconds = alone + whole * exchange / steps,
                                  .bytes_per_step = whole * t.times * (double)t.bytes / workers / steps,
                                  .end_seconds = t.end_seconds / workers,
                                  .end_bytes = t.times * (double)t.end_bytes / workers};
    return TW_OK;
}
