/* What a plan says that an exchange takes, beside every byte that the library asks for to make one. */
#include "memory.h"
#include "plan.h"
#include "row.h"
#include "support/random.h"
#include "support/ranks.h"

#include <math.h>
#include <thinwire/thinwire_outer.h>

enum { STEPS = 5000, BLOCKS = 4096, ELEMENTS = 125000 };

/* ---- the library's blocks, as large as it asked for them ------------------------------------------------------ */

static struct {
    pthread_mutex_t lock;
    void *at[BLOCKS];
    size_t bytes[BLOCKS], taken;
} ledger = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The entry of a block, or with NULL a free one. */
static size_t place_of(const void *block)
{
    size_t i = 0;
    while (i < BLOCKS && ledger.at[i] != block) i++;
    return i < BLOCKS ? i : (abort(), 0);
}

static void note(const void *key, void *block, size_t bytes)
{
    pthread_mutex_lock(&ledger.lock);
    size_t i = place_of(key);
    ledger.taken += bytes - ledger.bytes[i];
    ledger.at[i] = block;
    ledger.bytes[i] = bytes;
    pthread_mutex_unlock(&ledger.lock);
}

static size_t taken_now(void)
{
    pthread_mutex_lock(&ledger.lock);
    size_t bytes = ledger.taken;
    pthread_mutex_unlock(&ledger.lock);
    return bytes;
}

static void *take(void *context, size_t alignment, size_t bytes)
{
    void *block = aligned_alloc(alignment, bytes);
    if (block) note(NULL, block, bytes);
    return block;
}

static void give(void *context, void *block)
{
    note(block, NULL, 0);
    free(block);
}

static void count_blocks(void)
{
    static int counts;
    const tw_allocator mine = {.struct_size = sizeof mine, .allocate = take, .release = give};
    if (!counts++) assert_ok(tw_set_allocator(&mine));
}

/* ---- an exchange of one worker ---------------------------------------------------------------------------------- */

typedef struct worker {
    const tw_tensor *table;
    size_t count;
    float *tensors[4];
} worker;

/* Of local updates somebody looks at the weights in the steps that are due. */
static void take_steps(const worker *w, tw_reducer *reducer, tw_outer *outer, int steps)
{
    tw_outer_event event;
    for (int step = 0; step < steps; step++) {
        for (size_t i = 0; i < w->count; i++) {
            const size_t count = tw_tensor_count(&w->table[i]);
            if (reducer || tw_outer_is_due(outer)) fill_uniform((uint64_t)step, 1, w->tensors[i], count);
            if (reducer) assert_ok(tw_reducer_submit(reducer, i, w->tensors[i]));
        }
        assert_ok(reducer ? tw_reducer_wait(reducer) : tw_outer_step(outer, w->tensors, &event));
    }
}

/* Bytes that are there after some steps by the spec, and were not before. */
static double bytes_taken(const worker *w, const char *spec, int updates, int steps)
{
    tw_comm *comm;
    tw_reducer *reducer = NULL;
    tw_outer *outer = NULL;
    assert_ok(tw_comm_create_threads(1, &comm));
    const size_t before = taken_now();
    if (updates) {
        assert_ok(tw_outer_create(comm, spec, w->table, w->count, &outer));
        assert_ok(tw_outer_show_moments(outer, w->tensors, w->tensors));
        assert_ok(tw_outer_begin(outer, w->tensors));
    } else
        assert_ok(tw_reducer_create(comm, spec, w->table, w->count, &reducer));
    take_steps(w, reducer, outer, steps);
    const double bytes = (double)(taken_now() - before);
    tw_reducer_destroy(reducer);
    tw_outer_destroy(outer);
    tw_comm_destroy(comm);
    return bytes;
}

static void assert_close(const char *spec, double found, double wanted)
{
    if (!(fabs(found - wanted) <= 0.02 * wanted)) fail_msg("%s: %.0f bytes, and it takes %.0f", spec, found, wanted);
}

/* The spec as the last part of the run has it. */
static char *last_of_run(const char *spec)
{
    char of_run[256], *last;
    tw_spec_for_run(spec, STEPS, of_run, sizeof of_run);
    assert_ok(tw_spec_without_warmup(of_run, &last));
    return last;
}

static void check_rows(const worker *w, tw_plan_optimizer optimizer)
{
    const tw_plan_question q = {.struct_size = sizeof q,
                                .tensors = w->table,
                                .tensor_count = w->count,
                                .workers = 2,
                                .optimizer = optimizer,
                                .steps = STEPS,
                                .pass_seconds = 1,
                                .codec_rate = 1e9,
                                .bandwidth = 1e9,
                                .bandwidth_down = 1e9,
                                .simulate = tw_world_play};
    tw_plan *plan;
    tw_plan_row row = {.struct_size = sizeof row};
    assert_ok(tw_plan_make(&q, &plan));
    for (size_t i = 0; tw_plan_row_at(plan, i, &row) == TW_OK; i++) {
        if (row.left_out || row.kind == TW_PLAN_WEIGHTS) continue; /* of gossip nothing is said */
        const double every = tw_spec_number(row.spec, "every");
        char *last = last_of_run(row.spec);
        assert_close(row.spec, row.memory_bytes, bytes_taken(w, last, every > 0, every > 0 ? 2 * (int)every : 2));
        tw_free(last);
    }
    assert_close("allreduce", row_of(plan, "allreduce").memory_bytes, 4.0 * 2 * ELEMENTS); /* a copy of each gradient */
    assert_close("bf16", row_of(plan, "bf16").memory_bytes, 2.0 * 2 * ELEMENTS);
    tw_plan_destroy(plan);
}

TEST(test_memory_of_every_candidate)
{
    const tw_tensor both[] = {{"one", 2, {ELEMENTS / 250, 250}}, {"other", 2, {ELEMENTS / 250, 250}}};
    const worker w = {both, 2, {random_floats(0, ELEMENTS), random_floats(1, ELEMENTS)}};
    count_blocks();
    check_rows(&w, TW_PLAN_SGD);
    check_rows(&w, TW_PLAN_ADAMW);
    for (size_t i = 0; i < w.count; i++) free(w.tensors[i]);
}

/* Large blocks are aligned to pages of 2 MiB. What the C library leaves between them is no memory that anybody uses. */
TEST(test_memory_of_large_blocks)
{
    static const char *const specs[] = {"allreduce", "bf16", "local:every=1"};
    const tw_tensor large = {"large", 2, {2048, 1024}};
    const worker w = {&large, 1, {random_floats(0, 2048 * 1024)}};
    tw_thin whole;
    tw_trial trial;
    float *noise = random_floats(1, 2 * 2048 * 1024 + TW_NOISE_MARGIN);
    count_blocks();
    assert_ok(tw_thin_create(&large, 1, SIZE_MAX, &whole));
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        assert_ok(tw_trial_take(&whole, noise, specs[i], 1, &trial));
        assert_close(specs[i], trial.memory_bytes, bytes_taken(&w, specs[i], i == 2, 2));
    }
    tw_thin_release(&whole);
    free(noise);
    free(w.tensors[0]);
}

RUN_TESTS(NULL, NULL)
