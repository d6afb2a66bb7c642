/* When a line is said to be another one: by times that are written down, with noise, and over a virtual line. */
#include "support/assert.h"
#include "world.h"

#include <math.h>
#include <stdlib.h>
#include <thinwire/thinwire_plan.h>
#include <thinwire/thinwire_plugin.h>

enum { RANKS = 4, WINDOW = 32, BYTES = 1000000 };

/* Between 1 - share and 1 + share. */
static double noise(uint64_t seed, uint64_t number, double share)
{
    uint32_t words[4];
    tw_random(seed, 0, number, words);
    return 1 + share * (2 * (double)words[0] / UINT32_MAX - 1);
}

/* What all say after one window, rank r of which takes factors[r] times as long, give or take a share. */
static double say(tw_watch *const *watches, const double *factors, double bytes, double share, uint64_t seed)
{
    double middles[2 * RANKS], said = 0;
    for (int rank = 0; rank < RANKS; rank++)
        for (uint64_t i = 0; i < WINDOW; i++) {
            double taken = factors[rank] * noise(seed, (uint64_t)rank * WINDOW + i, share);
            assert_int_equal(tw_watch_add(watches[rank], bytes, taken, middles + 2 * rank), i == WINDOW - 1);
        }
    for (int rank = 0; rank < RANKS; rank++) {
        double times = tw_watch_judge(watches[rank], middles, RANKS);
        if (rank > 0) assert_true(times == said);
        said = times;
    }
    return said;
}

static double say_all(tw_watch *const *watches, double factor, double share, uint64_t seed)
{
    return say(watches, (const double[RANKS]){factor, factor, factor, factor}, BYTES, share, seed);
}

/* Ready to compare: the first window warms up. */
static void begin(tw_watch **watches)
{
    for (int rank = 0; rank < RANKS; rank++) assert_ok(tw_watch_create(WINDOW, &watches[rank]));
    assert_true(say_all(watches, 50, 0, 0) == 1);
    assert_true(say_all(watches, 1, 0, 0) == 1);
}

static void end(tw_watch **watches)
{
    for (int rank = 0; rank < RANKS; rank++) tw_watch_destroy(watches[rank]);
}

static void assert_about(double value, double expected)
{
    if (!(fabs(value / expected - 1) < 0.2)) fail_msg("%g is not about %g", value, expected);
}

TEST(test_noise_is_no_change)
{
    tw_watch *watches[RANKS];
    begin(watches);
    for (uint64_t seed = 1; seed <= 500; seed++) assert_true(say_all(watches, 1, 0.4, seed) == 1);
    for (uint64_t seed = 1; seed <= 50; seed++) assert_true(say_all(watches, seed % 2 ? 1.9 : 0.53, 0, seed) == 1);
    end(watches);
}

/* Each once, in the second window that says so. */
TEST(test_a_line_falls_and_comes_back)
{
    tw_watch *watches[RANKS];
    begin(watches);
    assert_true(say_all(watches, 10, 0.4, 1) == 1);
    assert_about(say_all(watches, 10, 0.4, 2), 10);
    for (uint64_t seed = 3; seed < 50; seed++) assert_true(say_all(watches, 10, 0.4, seed) == 1);
    assert_true(say_all(watches, 1, 0.4, 50) == 1);
    assert_about(say_all(watches, 1, 0.4, 51), 0.1);
    for (uint64_t seed = 52; seed < 100; seed++) assert_true(say_all(watches, 1, 0.4, seed) == 1);
    end(watches);
}

/* What comes on quietly is compared with what was known, and not with the window before. */
TEST(test_one_window_is_no_change_and_a_slow_change_is_one)
{
    tw_watch *watches[RANKS];
    begin(watches);
    for (int i = 0; i < 4; i++) assert_true(say_all(watches, i % 2 ? 1 : 10, 0, 1) == 1);
    for (int i = 0; i < 4; i++) assert_true(say_all(watches, i % 2 ? 0.1 : 10, 0, 1) == 1);
    for (double factor = 1.2; factor < 1.9; factor += 0.2) assert_true(say_all(watches, factor, 0, 1) == 1);
    assert_true(say_all(watches, 2.1, 0, 1) == 1);
    assert_about(say_all(watches, 2.1, 0, 1), 2.1);
    end(watches);
}

/* All but the one that is late wait longer, for it. */
TEST(test_a_slow_rank_is_no_slow_line)
{
    const double late[RANKS] = {7, 7, 1, 7};
    tw_watch *watches[RANKS];
    begin(watches);
    for (int i = 0; i < 4; i++) assert_true(say(watches, late, BYTES, 0, 1) == 1);
    end(watches);
}

/* A scheme in its warm-up sends less and less, and what one exchange takes beside its bytes counts for more. */
TEST(test_other_bytes_are_not_compared)
{
    const double same[RANKS] = {1, 1, 1, 1}, slower[RANKS] = {4, 4, 4, 4};
    tw_watch *watches[RANKS];
    begin(watches);
    for (int i = 0; i < 4; i++) assert_true(say(watches, same, BYTES / 4.0, 0, 1) == 1);
    assert_true(say(watches, slower, BYTES / 4.0, 0, 1) == 1);
    assert_about(say(watches, slower, BYTES / 4.0 * 1.1, 0, 1), 4 / 1.1);
    assert_true(say(watches, same, 0, 0, 1) == 1);
    end(watches);
}

TEST(test_what_is_no_window)
{
    double middle[2];
    tw_watch *watch = NULL;
    assert_fails(tw_watch_create(2, &watch), TW_ERROR_ARGUMENT, "window of 2");
    assert_fails(tw_watch_create(1001, &watch), TW_ERROR_ARGUMENT, "3 to 1000");
    assert_ok(tw_watch_create(3, &watch));
    for (int i = 0; i < 9; i++) assert_int_equal(tw_watch_add(watch, i % 3 ? -1 : 1, (double)NAN, middle), i % 3 == 2);
    assert_true(middle[0] == 0 && middle[1] == 0);
    tw_watch_destroy(watch);
}

/* ---- over a line of virtual time --------------------------------------------------------------------------------- */

enum { ELEMENTS = 10000, STEPS = 20 * WINDOW, FALL = 6 * WINDOW, RISE = 12 * WINDOW };

typedef struct trial {
    tw_world *world;
    double said[STEPS / WINDOW][2]; /* which window, and what */
    int changes;
} trial;

static double seconds_exchange(const tw_reducer *reducer)
{
    tw_reducer_counts counts = {.struct_size = sizeof counts};
    assert_ok(tw_reducer_stats(reducer, &counts));
    return counts.seconds_exchange;
}

/* Rank 0's hand on the line, between two steps. */
static void shape(const trial *t, int step)
{
    if (step == FALL) t->world->network.bandwidth = t->world->network.bandwidth_down /= 10;
    if (step == RISE) t->world->network.bandwidth = t->world->network.bandwidth_down *= 10;
}

static void work(void *context, int rank, tw_comm *comm)
{
    static const tw_tensor table[] = {{"w", 2, {ELEMENTS / 100, 100}}};
    trial *t = context;
    float *gradient = calloc(ELEMENTS, sizeof *gradient);
    double own[2], all[2 * RANKS], before = 0;
    tw_reducer *reducer;
    tw_watch *watch;
    assert_non_null(gradient);
    assert_ok(tw_watch_create(WINDOW, &watch));
    assert_ok(tw_reducer_create(comm, "allreduce", table, 1, &reducer));
    for (int step = 0; step < STEPS; step++) {
        if (rank == 0) shape(t, step);
        tw_world_compute(0.1 * noise((uint64_t)rank, (uint64_t)step, 0.4));
        assert_ok(tw_reducer_submit(reducer, 0, gradient));
        assert_ok(tw_reducer_wait(reducer));
        double now = seconds_exchange(reducer);
        int full = tw_watch_add(watch, ELEMENTS * sizeof(float), now - before, own);
        before = now;
        if (!full) continue;
        assert_ok(tw_comm_allgather(comm, own, sizeof own, all));
        double times = tw_watch_judge(watch, all, RANKS);
        if (rank > 0 || times == 1) continue;
        t->said[t->changes][0] = (double)(step / WINDOW);
        t->said[t->changes++][1] = times;
    }
    tw_watch_destroy(watch);
    tw_reducer_destroy(reducer);
    free(gradient);
}

/* Passes of its ranks differ by up to 40 % to either side, and exchanges wait for the slowest. */
TEST(test_a_virtual_line)
{
    const tw_world_options line = {.struct_size = sizeof line, .workers = RANKS, .bandwidth = 1e5, .latency = 0.001};
    trial t = {NULL};
    assert_ok(tw_world_create(&line, &t.world));
    assert_ok(tw_world_run(t.world, work, &t));
    tw_world_destroy(t.world);
    assert_int_equal(t.changes, 2);
    assert_true(t.said[0][0] == (double)FALL / WINDOW + 1);
    assert_true(t.said[1][0] == (double)RISE / WINDOW + 1);
    if (t.said[0][1] < 5 || t.said[0][1] > 11)
        fail_msg("it fell to a tenth, and is said to be %g slower", t.said[0][1]);
    assert_true(fabs(t.said[0][1] * t.said[1][1] - 1) < 0.1);
}

RUN_TESTS(NULL, NULL)
