/* One rank without peers: what is left of an exchange is what the scheme makes its caller pay. */
#include "error.h"
#include "exchange.h"
#include "plan.h"
#include "scheme.h"
#include "tensor_table.h"
#include <math.h>
#include <stdlib.h>
#include <thinwire/thinwire_outer.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { TURNS = 3 }; /* timed; the least counts, as a busy neighbour makes none shorter */

typedef struct bench {
    const layout *tensors;
    tw_comm *comm;
    tw_reducer *reducer; /* one of the two */
    tw_outer *outer;
    float *values, **at;
    uint64_t steps; /* of a round */
} bench;

/* That the process has from the C library; NAN where that cannot be asked. */
static double memory_in_use(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 now = mallinfo2();
    return (double)(now.uordblks + now.hblkhd);
#else
    return (double)NAN;
#endif
}

static void fill(const bench *b, uint64_t turn)
{
    for (size_t i = 0; i < b->tensors->elements; i++) {
        uint64_t mixed = (i + turn) * 0x9E3779B97F4A7C15u;
        b->values[i] = 1e-3f * ((float)(mixed >> 40) / 8388608.0f - 1);
    }
}

static tw_status trial_reduce(const bench *b)
{
    for (size_t i = b->tensors->count; i-- > 0;) TW_TRY(tw_reducer_submit(b->reducer, i, b->at[i]));
    return tw_reducer_wait(b->reducer);
}

static tw_status trial_round(const bench *b)
{
    tw_outer_event event;
    for (uint64_t step = 0; step < b->steps; step++) TW_TRY(tw_outer_step(b->outer, b->at, &event));
    return TW_OK;
}

static tw_status take_turns(const bench *b, double *least)
{
    *least = INFINITY;
    for (uint64_t turn = 0; turn <= TURNS; turn++) {
        fill(b, turn);
        double begun = tw_clock();
        TW_TRY(b->outer ? trial_round(b) : trial_reduce(b));
        if (turn > 0) *least = fmin(*least, tw_clock() - begun);
    }
    return TW_OK;
}

static tw_status trial_create(bench *b, const char *spec)
{
    size_t scheme;
    const layout *t = b->tensors;
    if (!exchange_find(spec, &scheme)->side_by_side)
        return tw_reducer_create(b->comm, spec, t->tensors, t->count, &b->reducer);
    b->steps = (uint64_t)scheme_number(spec, "every");
    TW_TRY(tw_outer_create(b->comm, spec, t->tensors, t->count, &b->outer));
    return tw_outer_begin(b->outer, b->at);
}

static tw_status trial_measure(bench *b, const char *spec, plan_trial *trial)
{
    fill(b, 0);
    double before = memory_in_use();
    TW_TRY(trial_create(b, spec));
    TW_TRY(take_turns(b, &trial->seconds));
    trial->memory_bytes = fmax(0, memory_in_use() - before);
    return TW_OK;
}

tw_status plan_try(const layout *tensors, const char *spec, plan_trial *trial)
{
    bench b = {.tensors = tensors};
    *trial = (plan_trial){0, 0};
    TW_TRY(tw_comm_create_threads(1, &b.comm));
    b.values = malloc(tensors->elements * sizeof *b.values);
    b.at = malloc(tensors->count * sizeof *b.at);
    tw_status status = b.values && b.at ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for the gradients of a worker");
    if (status == TW_OK) tensor_table_place(tensors->tensors, tensors->count, b.values, b.at);
    if (status == TW_OK) status = trial_measure(&b, spec, trial);
    tw_reducer_destroy(b.reducer);
    tw_outer_destroy(b.outer);
    free(b.values);
    free(b.at);
    tw_comm_destroy(b.comm);
    return status;
}
