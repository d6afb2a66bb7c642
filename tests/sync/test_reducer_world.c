/* The same reducer program in a world and over threads: the same bits; and a world is the same each time, in everything
 * that can be seen of it. */
#include <stdlib.h>
#include <string.h>

#include "support/cmocka.h"

#include <pthread.h>
#include <thinwire/thinwire_plugin.h>
#include <thinwire/thinwire_sim.h>

enum { RANKS = 8, STEPS = 4, TENSORS = 3, SIDE = 40, COUNT = SIDE * SIDE, MOST_EVENTS = 1000 };

static const tw_tensor table[TENSORS] = {{"a", 2, {SIDE, SIDE}}, {"b", 2, {SIDE, SIDE}}, {"c", 2, {SIDE, SIDE}}};

/* What happened, in the order in which it did. */
typedef struct event {
    double at;
    int rank, step;
    uint32_t crc; /* of the gradients' mean */
} event;

typedef struct program {
    const char *spec;
    event events[MOST_EVENTS]; /* in a world, where one thread at a time runs */
    size_t count;
    uint32_t crc[RANKS]; /* of the last step */
    tw_status status[RANKS];
    tw_world *world;
} program;

static void fill(float *gradient, int rank, int step, int tensor)
{
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t words[4];
        tw_random((uint64_t)step, (uint64_t)(rank * TENSORS + tensor), i, words);
        gradient[i] = (float)(int32_t)words[0] * 0x1p-31f;
    }
}

static tw_status play_step(tw_reducer *reducer, int rank, int step, float (*gradients)[COUNT])
{
    for (int t = TENSORS; t-- > 0;) {
        tw_world_compute(1e-3 * (1 + (rank * 7 + t * 3 + step) % 5)); /* some are slower, and not always the same */
        fill(gradients[t], rank, step, t);
        tw_status status = tw_reducer_submit(reducer, (size_t)t, gradients[t]);
        if (status != TW_OK) return status;
    }
    return tw_reducer_wait(reducer);
}

static void play(program *all, int rank, tw_comm *comm)
{
    tw_reducer *reducer;
    float(*gradients)[COUNT] = malloc(TENSORS * sizeof *gradients);
    tw_status status = tw_reducer_create(comm, all->spec, table, TENSORS, &reducer);
    for (int step = 0; status == TW_OK && step < STEPS; step++) {
        status = play_step(reducer, rank, step, gradients);
        all->crc[rank] = tw_crc32c(0, gradients, TENSORS * sizeof *gradients);
        if (all->world) all->events[all->count++] = (event){tw_clock(), rank, step, all->crc[rank]};
    }
    all->status[rank] = status;
    if (status == TW_OK) tw_reducer_destroy(reducer);
    free(gradients);
}

/* --- over threads -------------------------------------------------------------------------------------------- */

typedef struct player {
    program *all;
    tw_comm *comm;
} player;

static void *play_on_thread(void *argument)
{
    player *me = argument;
    play(me->all, tw_comm_rank(me->comm), me->comm);
    tw_comm_destroy(me->comm);
    return NULL;
}

static void run_threads(program *all)
{
    tw_comm *comms[RANKS];
    player players[RANKS];
    pthread_t threads[RANKS];
    assert_int_equal(tw_comm_create_threads(RANKS, comms), TW_OK);
    for (int r = 0; r < RANKS; r++) {
        players[r] = (player){all, comms[r]};
        assert_int_equal(pthread_create(&threads[r], NULL, play_on_thread, &players[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
}

/* --- in a world ---------------------------------------------------------------------------------------------- */

static void play_in_world(void *context, int rank, tw_comm *comm)
{
    play(context, rank, comm);
}

static double run_world(program *all)
{
    tw_world_options options = {.struct_size = sizeof options,
                                .workers = RANKS,
                                .workers_per_host = 2,
                                .bandwidth = 1e6,
                                .latency = 1e-4,
                                .overhead = 1e-5};
    assert_int_equal(tw_world_create(&options, &all->world), TW_OK);
    assert_int_equal(tw_world_run(all->world, play_in_world, all), TW_OK);
    double seconds = tw_world_seconds(all->world);
    tw_world_destroy(all->world);
    return seconds;
}

static const char *const specs[] = {"allreduce:message_kb=1", "dgc:density=0.02,momentum=0.9,message_kb=1",
                                    "scalecom:message_kb=1", "powersgd:overlap=off"};
enum { SPECS = sizeof specs / sizeof *specs };

static void test_a_world_has_the_bits_of_threads(void **state)
{
    (void)state;
    for (int s = 0; s < SPECS; s++) {
        program threads = {.spec = specs[s]}, simulated = {.spec = specs[s]};
        run_threads(&threads);
        run_world(&simulated);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(threads.status[r], TW_OK);
            assert_int_equal(simulated.status[r], TW_OK);
            assert_int_equal(threads.crc[r], simulated.crc[r]);
        }
    }
}

static void test_a_world_is_the_same_every_time(void **state)
{
    (void)state;
    for (int s = 0; s < SPECS; s++) {
        program first = {.spec = specs[s]}, second = {.spec = specs[s]};
        double seconds = run_world(&first);
        assert_true(seconds == run_world(&second) && seconds > STEPS * 0.003);
        assert_int_equal(first.count, RANKS * STEPS);
        for (size_t i = 0; i < first.count; i++) {
            assert_true(first.events[i].at == second.events[i].at);
            assert_int_equal(first.events[i].rank, second.events[i].rank);
            assert_int_equal(first.events[i].step, second.events[i].step);
            assert_int_equal(first.events[i].crc, second.events[i].crc);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_world_has_the_bits_of_threads),
        cmocka_unit_test(test_a_world_is_the_same_every_time),
    };
    return cmocka_run_group_tests_name("reducer in a world", tests, NULL, NULL);
}
