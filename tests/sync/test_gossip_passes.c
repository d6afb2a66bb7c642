/* Weights of many blocks, on which a worker and its communication thread work at the same time. All elements begin
 * alike and get the same steps, so at any one moment they are the same number: what read gives tells whether it is of
 * one. */
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>

#include "support/ranks.h"

enum { RANKS = 3, TENSORS = 3, STEPS = 60 };

/* Tensors end within blocks, and one of them spans several. */
static const tw_tensor table[TENSORS] = {{.name = "long", .dims = 1, .shape = {250001}},
                                         {.name = "short", .dims = 1, .shape = {7}},
                                         {.name = "square", .dims = 2, .shape = {300, 301}}};

typedef struct worker {
    const char *spec;
    float *values[TENSORS], *steps[TENSORS];
    float mean;  /* of finish */
    size_t torn; /* elements that differed from the first of their read */
    int failed;  /* a call */
    char why[256];
} worker;

static void allocate(float **values, float filling)
{
    for (size_t t = 0; t < TENSORS; t++) {
        size_t count = tw_tensor_count(&table[t]);
        values[t] = malloc(count * sizeof **values);
        for (size_t i = 0; i < count; i++) values[t][i] = filling;
    }
}

static void release(float **values)
{
    for (size_t t = 0; t < TENSORS; t++) free(values[t]);
}

static void look(worker *me)
{
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < tw_tensor_count(&table[t]); i++)
            me->torn += memcmp(&me->values[t][i], &me->values[0][0], sizeof(float)) != 0;
}

static tw_status play(worker *me, tw_gossip *gossip)
{
    for (int step = 0; step < STEPS; step++) {
        tw_status status = tw_gossip_read(gossip, me->values);
        look(me);
        if (status == TW_OK) status = tw_gossip_add(gossip, (const float *const *)me->steps);
        if (status != TW_OK) return status;
    }
    return tw_gossip_finish(gossip, me->values);
}

static void run(void *workers, int rank, tw_comm *comm)
{
    worker *me = (worker *)workers + rank;
    tw_gossip *gossip = NULL;
    tw_status status = tw_gossip_create(comm, me->spec, table, TENSORS, (const float *const *)me->values, &gossip);
    if (status == TW_OK) status = play(me, gossip);
    look(me);
    me->mean = me->values[0][0];
    me->failed = status != TW_OK;
    if (me->failed) strncpy(me->why, tw_last_error(), sizeof me->why - 1);
    tw_gossip_destroy(gossip);
}

/* Each rank's steps are a power of two, so that no sum is rounded as long as there is no averaging. */
static void check(const char *spec)
{
    worker workers[RANKS] = {0};
    double sum = 0;
    for (int r = 0; r < RANKS; r++) {
        float step = (float)(1 << r) / 1024;
        workers[r].spec = spec;
        allocate(workers[r].values, 1);
        allocate(workers[r].steps, step);
        sum += STEPS * (double)step;
    }
    run_on_threads(RANKS, run, workers);
    for (int r = 0; r < RANKS; r++) {
        if (workers[r].failed) fail_msg("%s, rank %d: %s", spec, r, workers[r].why);
        if (workers[r].torn) fail_msg("%s, rank %d: %zu elements of other moments", spec, r, workers[r].torn);
        assert_float_equal(workers[r].mean, 1 + sum / RANKS, 1e-4);
        assert_memory_equal(&workers[r].mean, &workers[0].mean, sizeof(float));
        release(workers[r].values);
        release(workers[r].steps);
    }
}

TEST(test_a_read_is_of_one_moment_and_no_step_is_lost)
{
    check("adpsgd-fixed:pace=free");
    check("adpsgd-random:pace=free,mixing=three,survive=off");
    check("prague:pace=free,group=3");
    check("dpsgd");
}

RUN_TESTS(NULL, NULL)
