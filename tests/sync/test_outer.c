/* The outer loop: golden values of the methods' equations (quadratics, worked out by hand and in exact arithmetic),
 * identities between methods, equal bits, and what happens to ranks that skip, stop early, spoil or differ. Each scene
 * runs in a world of virtual time. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#include "half.h"
#include "memory.h"
#include "object.h"
#include "outer.h"
#include "state.h"
#include "support/random.h"
#include "support/ranks.h"

enum { TENSORS = 2, MOST_RANKS = 8, MOST_STEPS = 128, MOST_ELEMENTS = 4096 };

typedef struct scene scene;

/* One rank's part of a scene. */
typedef struct actor {
    scene *all;
    int rank;
    tw_outer *outer;
    tw_comm *comm;
    float weights[MOST_ELEMENTS], shared[MOST_ELEMENTS], moments[TW_MOMENTS][MOST_ELEMENTS];
    float *parts[TENSORS], *shared_parts[TENSORS], *moment_parts[TW_MOMENTS][TENSORS];
    float history[MOST_STEPS][2]; /* theta after each step: the first element of each tensor */
    tw_outer_event events[MOST_STEPS];
    int due; /* steps that were */
    int met; /* steps behind which all ranks could have met */
    tw_status status;
    char text[512];
    tw_outer_counts counts;
} actor;

struct scene {
    const char *spec;
    int ranks, steps;
    size_t first, second; /* elements of the two tensors */
    /* A rank's local step, in place. */
    void (*move)(actor *self, int step);
    int (*steps_of)(const actor *self);          /* NULL: all take `steps` */
    tw_status (*between)(actor *self, int step); /* after each step; NULL: nothing */
    int unfinished;                              /* without tw_outer_finish */
    int hides;                                   /* the weights, in steps that are not due */
    int shows_moments;
    double start[2], centre[MOST_RANKS][2], rate, tilt[MOST_RANKS];
    actor *actors;
};

static void point(const scene *all, float *values, float **parts)
{
    parts[0] = values;
    parts[1] = values + all->first;
}

static tw_status create(actor *self)
{
    const scene *all = self->all;
    const tw_tensor table[TENSORS] = {{.name = "first", .dims = 1, .shape = {all->first}},
                                      {.name = "second", .dims = 1, .shape = {all->second}}};
    tw_status status = tw_outer_create(self->comm, all->spec, table, TENSORS, &self->outer);
    if (status != TW_OK || !all->shows_moments) return status;
    return tw_outer_show_moments(self->outer, self->moment_parts[0], self->moment_parts[1]);
}

static tw_status look(actor *self, int step)
{
    tw_status status = tw_outer_read(self->outer, self->shared_parts);
    self->history[step][0] = self->shared_parts[0][0];
    self->history[step][1] = self->shared_parts[1][0];
    return status;
}

/* With other memory in place of the weights where they are not looked at. */
static tw_status step_of(actor *self, int step)
{
    static float nothing[MOST_ELEMENTS];
    float *hidden[TENSORS] = {nothing, nothing};
    int due = tw_outer_is_due(self->outer);
    self->due += due;
    return tw_outer_step(self->outer, self->all->hides && !due ? hidden : self->parts, &self->events[step]);
}

static tw_status walk(actor *self)
{
    const scene *all = self->all;
    int steps = all->steps_of ? all->steps_of(self) : all->steps;
    tw_status status = tw_outer_begin(self->outer, self->parts);
    for (int step = 0; step < steps && status == TW_OK; step++) {
        tw_world_compute(0.01 * (1 + self->rank));
        all->move(self, step);
        status = step_of(self, step);
        if (status == TW_OK) status = look(self, step);
        if (status == TW_OK && all->between) status = all->between(self, step);
    }
    if (status == TW_OK && !all->unfinished) status = tw_outer_finish(self->outer, self->parts);
    return status == TW_OK ? tw_outer_read(self->outer, self->shared_parts) : status;
}

static void live(void *context, int rank, tw_comm *comm)
{
    scene *all = context;
    actor *self = &all->actors[rank];
    self->all = all;
    self->rank = rank;
    self->comm = comm;
    self->counts.struct_size = sizeof self->counts;
    point(all, self->weights, self->parts);
    point(all, self->shared, self->shared_parts);
    for (int m = 0; m < TW_MOMENTS; m++) point(all, self->moments[m], self->moment_parts[m]);
    for (size_t i = 0; i < all->first + all->second; i++) self->weights[i] = (float)all->start[i >= all->first];
    self->status = create(self);
    if (self->status == TW_OK) self->status = walk(self);
    if (self->status != TW_OK) snprintf(self->text, sizeof self->text, "%s", tw_last_error());
    if (self->outer) (void)tw_outer_stats(self->outer, &self->counts);
    tw_outer_destroy(self->outer);
}

static actor *played[1000]; /* of all scenes: freed when all tests are over */
static size_t scenes;

static int free_actors(void **state)
{
    while (scenes > 0) free(played[--scenes]);
    return 0;
}

static void play(scene *all)
{
    assert_true(scenes < sizeof played / sizeof *played);
    played[scenes++] = all->actors = calloc((size_t)all->ranks, sizeof *all->actors);
    run_in_world((tw_world_options){.workers = all->ranks, .latency = 1e-4}, live, all);
}

static void play_well(scene *all)
{
    play(all);
    for (int r = 0; r < all->ranks; r++)
        if (all->actors[r].status != TW_OK) fail_msg("%s, rank %d: %s", all->spec, r, all->actors[r].text);
    for (int r = 1; r < all->ranks; r++)
        assert_memory_equal(all->actors[0].shared, all->actors[r].shared, sizeof all->actors[0].shared);
}

static void play_both(scene *one, scene *other)
{
    play_well(one);
    play_well(other);
}

/* ---- a quadratic: the gradient is x - c -------------------------------------------------------------------------- */

static void descend(actor *self, int step)
{
    const scene *all = self->all;
    (void)step;
    for (int t = 0; t < TENSORS; t++) {
        float *x = self->parts[t];
        x[0] -= (float)all->rate * (x[0] - (float)all->centre[self->rank][t]);
    }
}

static scene quadratic(const char *spec, int steps, double start, double rate, const double centre[2])
{
    scene all = {.spec = spec,
                 .ranks = 2,
                 .steps = steps,
                 .first = 1,
                 .second = 1,
                 .move = descend,
                 .start = {start, start},
                 .rate = rate};
    for (int r = 0; r < 2; r++) all.centre[r][0] = all.centre[r][1] = centre[r];
    return all;
}

static void check_rounds(const char *spec, int every, double start, double rate, const double centre[2],
                         const double *golden, int rounds)
{
    scene all = quadratic(spec, every * rounds, start, rate, centre);
    play_well(&all);
    for (int round = 0; round < rounds; round++) {
        assert_near(all.actors[0].history[every * (round + 1) - 1][0], golden[round], 2e-6);
        assert_near(all.actors[0].weights[0], all.actors[0].shared[0], 0);
        for (int step = every * round; step < every * (round + 1) - 1; step++)
            assert_int_equal(all.actors[1].events[step], TW_OUTER_NOTHING);
        assert_int_equal(all.actors[1].events[every * (round + 1) - 1], TW_OUTER_APPLIED);
    }
    assert_int_equal(all.actors[1].counts.rounds, rounds + 1); /* the last is of finish, and nobody gives to it */
    assert_int_equal(all.actors[1].counts.rounds_empty, 1);
}

TEST(test_diloco_on_quadratics)
{
    const double golden2[] = {0.133742325, -0.351412315, -0.428759043, -0.271151209, -0.070351148, 0.060048953};
    const double golden3[] = {0.869318000, 0.717079770, 0.569051572};
    check_rounds("diloco:every=10,outer_lr=0.7,outer_momentum=0.9", 10, 1, 0.1, (double[]){1, -1}, golden2, 6);
    check_rounds("diloco:every=4,outer_lr=0.4,outer_momentum=0.9", 4, 1, 0.1, (double[]){2, -1}, golden3, 3);
}

/* Where there is nothing to give but zeros the momentum coasts, by -lr * momentum^2 * v. */
static void stand_still(actor *self, int step)
{
    if (step < 2) descend(self, step);
}

TEST(test_momentum_coasts)
{
    scene all = quadratic("diloco:every=2,outer_lr=0.5,outer_momentum=0.8", 4, 1, 0.5, (double[]){0, 0});
    all.move = stand_still;
    play_well(&all);
    const double v = 1 - 0.25, first = 1 - 0.5 * (v + 0.8 * v);
    assert_near(all.actors[0].history[1][0], first, 1e-6);
    assert_near(all.actors[0].history[3][0], first - 0.5 * 0.8 * 0.8 * v, 1e-6);
}

static void move_by_one(actor *self, int step)
{
    for (int t = 0; t < TENSORS; t++) self->parts[t][0] -= (float)(step % 2);
}

/* Where each round's mean is the same, steps grow as the geometric series does, towards lr / (1 - momentum). */
TEST(test_steps_of_a_constant_mean)
{
    enum { ROUNDS = 40 };
    const double lr = 0.7, m = 0.9;
    scene all = quadratic("diloco:every=2,outer_lr=0.7,outer_momentum=0.9", 2 * ROUNDS, 0, 0, (double[]){0, 0});
    all.move = move_by_one;
    play_well(&all);
    double theta = 0;
    for (int n = 1; n <= ROUNDS; n++) {
        theta -= lr * (1 + m * (1 - pow(m, n)) / (1 - m));
        assert_near(all.actors[1].history[2 * n - 1][0], theta, 1e-5 * fabs(theta));
    }
}

/* Heavy ball: without Nesterov's look ahead the step is v. */
TEST(test_heavy_ball)
{
    scene all = quadratic("diloco:every=2,outer_lr=0.5,outer_momentum=0.8,nesterov=off", 4, 1, 0.5, (double[]){0, 0});
    play_well(&all);
    double theta = 1, v = 0;
    for (int round = 0; round < 2; round++) {
        v = 0.8 * v + 0.75 * theta;
        theta -= 0.5 * v;
        assert_near(all.actors[0].history[2 * round + 1][0], theta, 1e-6);
    }
}

typedef struct stream_row {
    const char *spec;
    double theta[2], local[2][2];
    int rounds;
} stream_row;

/* Streaming on the quadratic, 12 steps: theta and each rank's weights, before finish. */
static const stream_row stream_rows[] = {
    {"streaming:every=4,outer_lr=0.4,outer_momentum=0.9,fragments=1,delay=0,mixing=0",
     {0.569051572, 0.569051572},
     {{0.569051572, 0.569051572}, {0.569051572, 0.569051572}},
     3},
    {"streaming:every=4,outer_lr=0.4,outer_momentum=0.9,fragments=2,delay=0,mixing=0",
     {0.635296235, 0.569051572},
     {{0.894589951, 0.569051572}, {0.324589951, 0.569051572}},
     6},
    {"streaming:every=4,outer_lr=0.4,outer_momentum=0.9,fragments=2,delay=1,mixing=0",
     {0.680022593, 0.737541465},
     {{0.812020334, 1.079667728}, {0.512020334, 0.266667728}},
     5},
    {"streaming:every=4,outer_lr=0.4,outer_momentum=0.9,fragments=2,delay=1,mixing=0.5",
     {0.649907900, 0.717021762},
     {{1.126810580, 1.326546624}, {0.170871840, -0.009408548}},
     5},
    {"streaming:every=4,outer_lr=0.4,outer_momentum=0.9,fragments=2,delay=1,mixing=1",
     {0.618003548, 0.696502060},
     {{1.717570464, 1.717570464}, {-0.435140927, -0.435140927}},
     5},
};

static void check_stream(const stream_row *row)
{
    scene all = quadratic(row->spec, 12, 1, 0.1, (double[]){2, -1});
    all.unfinished = 1;
    play_well(&all);
    for (int t = 0; t < TENSORS; t++) {
        assert_near(all.actors[0].shared[t], row->theta[t], 2e-6);
        for (int r = 0; r < 2; r++) assert_near(all.actors[r].weights[t], row->local[r][t], 2e-6);
    }
    assert_int_equal(all.actors[0].counts.rounds, row->rounds);
}

TEST(test_streaming_on_quadratics)
{
    for (size_t i = 0; i < sizeof stream_rows / sizeof *stream_rows; i++) check_stream(&stream_rows[i]);
}

/* Two tensors for four fragments: the last two meet without a word, and the first two as seldom as they would. */
TEST(test_fragments_without_a_tensor)
{
    scene all = quadratic("streaming:every=8,outer_lr=0.4,fragments=4,delay=0,mixing=0", 16, 1, 0.1, (double[]){2, -1});
    play_well(&all);
    for (int step = 0; step < 16; step++)
        assert_int_equal(all.actors[0].events[step],
                         step % 8 == 1 || step % 8 == 3 ? TW_OUTER_APPLIED : TW_OUTER_NOTHING);
    assert_true(all.actors[0].history[9][0] != all.actors[0].history[8][0]);
}

typedef struct follower {
    pthread_t thread;
    tw_comm *comm;
    tw_outer *outer;
    const char *spec;
    float weight;
    tw_status status;
} follower;

static void *follow(void *argument)
{
    static const tw_tensor table[] = {{.name = "a", .dims = 1, .shape = {1}}};
    follower *me = argument;
    float *const places[] = {&me->weight};
    me->status = tw_outer_create(me->comm, me->spec, table, 1, &me->outer);
    if (me->status == TW_OK) me->status = tw_outer_begin(me->outer, places);
    return NULL;
}

static void *finish(void *argument)
{
    follower *me = argument;
    float *const places[] = {&me->weight};
    me->status = tw_outer_finish(me->outer, places);
    return NULL;
}

static void begin_followers(follower *both, int from, int to, void *act(void *follower))
{
    for (int r = from; r < to; r++) assert_int_equal(pthread_create(&both[r].thread, NULL, act, &both[r]), 0);
}

static void end_followers(const follower *both)
{
    for (int r = 0; r < 2; r++) {
        pthread_join(both[r].thread, NULL);
        assert_int_equal(both[r].status, TW_OK);
    }
}

/* A person is told for whom a program waits. One whose steps are over waits for nobody, and so does one that goes on
 * with its steps meanwhile. */
TEST(test_who_follows_the_others_keeps_quiet)
{
    static const char *const specs[] = {"local:every=2", "streaming:every=4,fragments=1,delay=1"};
    for (int delayed = 0; delayed < 2; delayed++) {
        tw_comm *comms[2];
        follower both[2];
        assert_ok(tw_comm_create_threads(2, comms));
        for (int r = 0; r < 2; r++) both[r] = (follower){.comm = comms[r], .spec = specs[delayed]};
        begin_followers(both, 0, 2, follow);
        end_followers(both);
        for (int r = 0; r < 2; r++) assert_int_equal(comms[r]->quiet, delayed);
        begin_followers(both, 0, 1, finish);
        while (!comms[0]->quiet) sched_yield();
        assert_int_equal(comms[1]->quiet, delayed);
        begin_followers(both, 1, 2, finish);
        end_followers(both);
        for (int r = 0; r < 2; r++) assert_int_equal(comms[r]->quiet, delayed);
        for (int r = 0; r < 2; r++) tw_outer_destroy(both[r].outer);
        for (int r = 0; r < 2; r++) tw_comm_destroy(comms[r]);
    }
}

/* A pattern names a tensor of the model, in whichever fragment it is. */
TEST(test_patterns_of_a_stream_are_of_the_whole_model)
{
    const tw_tensor table[] = {{.name = "a", .dims = 1, .shape = {4096}}, {.name = "b", .dims = 1, .shape = {4096}}};
    static const char *const specs[] = {"streaming:fragments=2,every=4,exchange=topk,min_dims=1,dense=b",
                                        "streaming:fragments=2,every=4,exchange=scalecom,min_dims=1,rates=b@2"};
    tw_comm *comm;
    tw_outer *outer;
    assert_ok(tw_comm_create_threads(1, &comm));
    assert_ok(tw_outer_create(comm, specs[0], table, 2, &outer));
    assert_null(strstr(tw_outer_plan(outer, 0), "dense=b"));
    assert_non_null(strstr(tw_outer_plan(outer, 1), "dense=b"));
    tw_outer_destroy(outer);
    assert_ok(tw_outer_create(comm, specs[1], table, 2, &outer));
    tw_outer_destroy(outer);
    assert_fails(tw_outer_create(comm, "streaming:exchange=topk,dense=b|c", table, 2, &outer), TW_ERROR_SPEC,
                 "dense=c: no tensor has such a name; the first is called a");
    tw_comm_destroy(comm);
}

/* Each loop whose rounds travel meanwhile wants the log not told of waits, and no longer than it is there. */
TEST(test_loops_that_wait_for_nobody_are_quiet_until_they_are_destroyed)
{
    static const char *const specs[] = {"diloco:eager=on", "streaming:every=4,fragments=2,delay=1", "diloco"};
    static const tw_tensor table[] = {{.name = "a", .dims = 1, .shape = {8}}};
    tw_comm *comm;
    tw_outer *outer[3];
    assert_ok(tw_comm_create_threads(1, &comm));
    for (int i = 0; i < 3; i++) assert_ok(tw_outer_create(comm, specs[i], table, 1, &outer[i]));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(comm->quiet, i < 2 ? 2 - i : 0);
        tw_outer_destroy(outer[i]);
    }
    assert_int_equal(comm->quiet, 0);
    tw_comm_destroy(comm);
}

TEST(test_events_of_a_stream)
{
    scene all = quadratic("streaming:every=4,fragments=2,delay=1", 12, 1, 0.1, (double[]){2, -1});
    play_well(&all);
    for (int step = 0; step < 12; step++) /* sent after steps 2, 4, ..., taken after 3, 5, ... */
        assert_int_equal(all.actors[1].events[step], step % 2 == 1 ? TW_OUTER_STARTED
                                                     : step == 0   ? TW_OUTER_NOTHING
                                                                   : TW_OUTER_APPLIED);
}

/* ---- steps that are not due look at no weights ------------------------------------------------------------------- */

static void check_due(const char *spec, int due)
{
    scene open = quadratic(spec, 12, 1, 0.1, (double[]){2, -1}),
          hidden = quadratic(spec, 12, 1, 0.1, (double[]){2, -1});
    hidden.hides = 1;
    play_both(&open, &hidden);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(hidden.actors[r].due, due);
        assert_memory_equal(open.actors[r].history, hidden.actors[r].history, sizeof open.actors[r].history);
        assert_memory_equal(open.actors[r].weights, hidden.actors[r].weights, sizeof open.actors[r].weights);
    }
}

TEST(test_which_steps_are_due)
{
    check_due("diloco:every=3", 4);
    check_due("diloco:every=3,eager=on", 4);
    check_due("streaming:every=6,fragments=2,delay=0", 4);
    check_due("streaming:every=6,fragments=2,delay=1", 7); /* sent after 3, 6, 9, 12, and taken after 4, 7, 10 */
    assert_int_equal(tw_outer_is_due(NULL), 0);
}

/* ---- random walks: identities, with equal bits ------------------------------------------------------------------- */

static float noise(int rank, int step, size_t i)
{
    return ((float)random_word((uint64_t)(rank * 1000 + step), i) * 0x1p-32F - 0.5F) * 0.01F;
}

static void wander(actor *self, int step)
{
    for (size_t i = 0; i < self->all->first + self->all->second; i++) self->weights[i] += noise(self->rank, step, i);
}

static scene walk_of(const char *spec, int ranks, int steps)
{
    return (scene){.spec = spec,
                   .ranks = ranks,
                   .steps = steps,
                   .first = 3000,
                   .second = 700,
                   .move = wander,
                   .start = {0.25, -0.5}};
}

static void check_same(const char *one, const char *other)
{
    scene a = walk_of(one, 3, 12), b = walk_of(other, 3, 12);
    play_both(&a, &b);
    assert_memory_equal(a.actors[0].history, b.actors[0].history, sizeof a.actors[0].history);
    assert_memory_equal(a.actors[0].shared, b.actors[0].shared, sizeof a.actors[0].shared);
}

TEST(test_methods_that_are_the_same)
{
    check_same("local:every=4", "diloco:every=4,outer_lr=1,outer_momentum=0");
    check_same("diloco:every=4,outer_lr=0.6", "streaming:every=4,outer_lr=0.6,fragments=1,delay=0,mixing=0");
    check_same("diloco:every=4,merge=rda", "streaming:every=4,fragments=1,delay=0,merge=rda");
    check_same("diloco:every=4,outer_lr=0.7,outer_momentum=0.5,nesterov=on,exchange=allreduce", "diloco:every=4");
    check_same("diloco:every=4,exchange=topk,density=1,values=fp32,min_elements=1,min_dims=1", "diloco:every=4");
}

/* Where all of a chunk is sent; and methods that are another's with other defaults. */
TEST(test_an_exchange_that_sends_all_changes_nothing)
{
    check_same("sparseloco:every=4,chunk=64,k=64,values=fp32,min_elements=1", "local:every=4");
    check_same("sparseloco:every=4,chunk=64,k=64,values=fp32,min_elements=1,outer_lr=0.6,outer_momentum=0.5",
               "diloco:every=4,outer_lr=0.6");
    check_same("sparseloco:every=4", "diloco:every=4,outer_lr=1,outer_momentum=0,exchange=chunktopk,k=64");
    check_same("pulseloco:every=10", "diloco:every=10,exchange=pulse");
}

/* Each tensor travels once in `every` steps, whole or in parts; beside it travels what ranks tell each other. */
TEST(test_a_stream_sends_what_diloco_sends)
{
    scene whole = walk_of("diloco:every=6", 3, 24), parts = walk_of("streaming:every=6,fragments=2,delay=0", 3, 24);
    whole.unfinished = parts.unfinished = 1;
    play_both(&whole, &parts);
    const tw_outer_counts *one = &whole.actors[1].counts, *other = &parts.actors[1].counts;
    assert_int_equal(one->rounds, 4);
    assert_int_equal(other->rounds, 8);
    assert_int_equal(one->message_fp32, other->message_fp32);
    assert_int_equal(one->message_packet, other->message_packet);
    assert_near((double)other->bytes_sent, (double)one->bytes_sent, 1000);
}

/* ---- directions and lengths apart -------------------------------------------------------------------------------- */

static tw_status weigh(actor *self, int step)
{
    return step == 0 ? tw_outer_set_weight(self->outer, self->all->tilt[self->rank]) : TW_OK;
}

/* Each rank moves by an arrow of its own, in the first two elements of the first tensor; the other one stays. */
static const float (*arrows)[2];

static void move_by_arrow(actor *self, int step)
{
    (void)step;
    for (int i = 0; i < 2; i++) self->parts[0][i] -= arrows[self->rank][i];
}

static void check_merge_of(int ranks, const char *spec, const float of[][2], const double *tilt, const double golden[2])
{
    scene all = walk_of(spec, ranks, 4); /* the first round is after the second step: weights are told before */
    arrows = of;
    all.move = move_by_arrow;
    all.between = weigh;
    all.start[0] = all.start[1] = 0;
    for (int r = 0; r < ranks; r++) all.tilt[r] = tilt[r];
    play_well(&all);
    for (int i = 0; i < 2; i++) assert_near(-all.actors[1].shared[i] / 4, golden[i], 1e-4);
    for (size_t i = 2; i < 3700; i++) assert_true(all.actors[1].shared[i] == 0);
}

static void check_merge(const char *spec, const float of[2][2], const double tilt[2], const double golden[2])
{
    check_merge_of(2, spec, of, tilt, golden);
}

TEST(test_rda_averages_directions_and_lengths_apart)
{
    const float across[2][2] = {{3, 0}, {0, 4}}, opposite[2][2] = {{1, 0}, {-1, 0}};
    const double even[] = {1, 1}, uneven[] = {4, 1}, one[] = {1, 0};
    check_merge("local:every=2,merge=rda", across, even, (double[]){2.4749, 2.4749});
    check_merge("local:every=2,merge=rda", across, uneven, (double[]){3.1045, 0.7761});
    check_merge("local:every=2,merge=rda", opposite, even, (double[]){0, 0});
    check_merge("local:every=2,merge=rda", across, one, (double[]){3, 0});
    check_merge("local:every=2,merge=mean", across, even, (double[]){1.5, 2});
    check_merge("local:every=2,merge=mean", across, uneven, (double[]){2.4, 0.8});
    check_merge("diloco:every=2,merge=rda,outer_lr=0.5,outer_momentum=0", across, even, (double[]){1.2374, 1.2374});
}

/* What rounding leaves of parts that cancel has no direction, in many elements and in a single one; and a part that is
 * nothing beside the other does not spoil it. */
TEST(test_rda_takes_no_direction_from_nothing)
{
    const float against[2][2] = {{0.7F, 0.1F}, {-0.21F, -0.03F}}, tiny[2][2] = {{1e-40F, 0}, {3, 4}};
    const double even[] = {1, 1};
    check_merge("local:every=2,merge=rda", against, even, (double[]){0, 0});
    check_merge("local:every=2,merge=rda", tiny, even, (double[]){1.5, 2});
    for (int i = 1; i < 20; i++) { /* one element of each tensor: deltas of i / 7 and -0.2 */
        scene all = quadratic("local:every=1,merge=rda", 1, 0, 1, (double[]){-i / 7.0, 0.2});
        play_well(&all);
        for (int t = 0; t < TENSORS; t++) assert_near(all.actors[1].shared[t], 0, 0);
    }
}

/* Rank r takes 4 * (3 - r) + r steps: rank 2 begins to finish first. */
static int fewer(const actor *self)
{
    return 4 * (3 - self->rank) + self->rank;
}

/* ---- eager rounds ------------------------------------------------------------------------------------------------ */

/* The publication's recursion: a worker's own theta and momentum take D = the mean of the round before + what its own
 * part has changed by since / N. And what is shared takes the mean alone. */
typedef struct eager_twin {
    double rate, momentum;
    int nesterov;
    double x[2], v[2], before[2], shared, shared_v, mean;
} eager_twin;

static void twin_takes(const eager_twin *twin, double d, double *v, double *x)
{
    *v = twin->momentum * *v + d;
    *x -= twin->rate * (twin->nesterov ? d + twin->momentum * *v : *v);
}

static void twin_round(eager_twin *twin, int every, double step, const double centre[2])
{
    double mean = 0, delta[2];
    for (int r = 0; r < 2; r++) {
        double w = twin->x[r];
        for (int i = 0; i < every; i++) w += step * (centre[r] - w);
        delta[r] = twin->x[r] - w;
        mean += delta[r] / 2;
        twin_takes(twin, twin->mean + (delta[r] - twin->before[r]) / 2, &twin->v[r], &twin->x[r]);
        twin->before[r] = delta[r];
    }
    if (twin->mean != 0) twin_takes(twin, twin->mean, &twin->shared_v, &twin->shared);
    twin->mean = mean;
}

static void check_eager(const char *spec, double rate, double momentum, int nesterov)
{
    enum { EVERY = 4, ROUNDS = 12 };
    const double centre[2] = {2, -1};
    eager_twin twin = {.rate = rate, .momentum = momentum, .nesterov = nesterov, .x = {1, 1}, .shared = 1};
    scene all = quadratic(spec, EVERY * ROUNDS, 1, 0.1, centre);
    all.unfinished = 1;
    play_well(&all);
    for (int round = 0; round < ROUNDS; round++) {
        twin_round(&twin, EVERY, 0.1, centre);
        assert_near(all.actors[1].history[EVERY * (round + 1) - 1][0], twin.shared, 2e-6);
        assert_int_equal(all.actors[1].events[EVERY * (round + 1) - 1], TW_OUTER_APPLIED);
    }
    for (int r = 0; r < 2; r++) assert_near(all.actors[r].weights[0], twin.x[r], 2e-6);
    assert_true(fabs(all.actors[0].weights[0] - all.actors[1].weights[0]) > 0.01);
}

TEST(test_eager_rounds_are_the_publications)
{
    check_eager("local:every=4,eager=on", 1, 0, 0);
    check_eager("diloco:every=4,outer_lr=0.4,outer_momentum=0.9,eager=on", 0.4, 0.9, 1);
    check_eager("diloco:every=4,outer_lr=0.4,outer_momentum=0.6,nesterov=off,eager=on", 0.4, 0.6, 0);
}

/* One worker's own part is the mean. */
TEST(test_one_eager_worker_is_where_it_would_be_without)
{
    scene eager = walk_of("diloco:every=3,eager=on", 1, 12), plain = walk_of("diloco:every=3", 1, 12);
    eager.unfinished = plain.unfinished = 1;
    play_both(&eager, &plain);
    for (size_t i = 0; i < 3700; i++) assert_near(eager.actors[0].weights[i], plain.actors[0].weights[i], 1e-6);
}

/* Where steps do not depend on where a worker is, theta is in the end what it would be without: no part is lost, and
 * none counts twice, also where ranks are at their ends at different times. */
TEST(test_eager_rounds_give_the_same_parts)
{
    const char *specs[][2] = {{"local:every=4", "local:every=4,eager=on"},
                              {"diloco:every=4", "diloco:every=4,eager=on"},
                              {"diloco:every=4,exchange=topk,density=1,values=fp32,min_elements=1,min_dims=1,eager=on",
                               "diloco:every=4,eager=on"}};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        scene pair[2];
        for (int i = 0; i < 2; i++) {
            pair[i] = walk_of(specs[s][i], 3, 0);
            pair[i].steps_of = fewer;
            play_well(&pair[i]);
        }
        for (size_t i = 0; i < 3700; i++) assert_near(pair[0].actors[0].shared[i], pair[1].actors[0].shared[i], 1e-6);
    }
}

/* Rank 1 goes where fp16 does not reach, and comes back four steps later. */
static void go_far_and_back(actor *self, int step)
{
    wander(self, step);
    if (self->rank == 1 && (step == 5 || step == 9)) self->weights[3200] += step == 5 ? 1e6F : -1e6F;
}

TEST(test_an_eager_part_that_no_mean_brought_comes_with_the_next)
{
    scene all = walk_of("local:every=4,exchange=fp16,eager=on", 2, 16);
    all.move = go_far_and_back;
    play_well(&all);
    assert_int_equal(all.actors[0].counts.rounds_empty, 2); /* the far one, and finish's */
    for (size_t i = 0; i < 3200; i++) {
        double mean = i < 3000 ? 0.25 : -0.5;
        for (int step = 0; step < 16; step++) mean += (noise(0, step, i) + noise(1, step, i)) / 2;
        assert_near(all.actors[1].shared[i], mean, 1e-4);
    }
    assert_near(all.actors[1].shared[3200], -0.5, 0.3);
}

/* The recursion of one element of two workers, of whose rounds one comes to nothing: its parts are in the next, once.
 * `at`: where each goes on after them all, if its steps have moved it so far in each. */
enum { LOST_ROUND = 1, WALKED_ROUNDS = 4 };

static void walk_with_a_lost_round(double rate, double momentum, const double moved[2][WALKED_ROUNDS], double start,
                                   double at[2])
{
    double v = 0, own[2] = {0}, part[2] = {0};
    for (int round = 0; round < WALKED_ROUNDS; round++) {
        if (round > 0 && round - 1 != LOST_ROUND) {
            const double mean = (part[0] + part[1]) / 2;
            v = momentum * v + mean;
            start -= rate * (mean + momentum * v);
            for (int r = 0; r < 2; r++) own[r] = momentum * own[r] + part[r];
            part[0] = part[1] = 0;
        }
        for (int r = 0; r < 2; r++) {
            part[r] -= moved[r][round];
            at[r] = start - rate / 2 * (part[r] + momentum * (momentum * own[r] + part[r]));
        }
    }
}

TEST(test_an_eager_part_that_is_given_again_counts_once_in_the_momentum)
{
    scene all = walk_of("diloco:every=4,outer_lr=0.5,outer_momentum=0.9,exchange=fp16,eager=on", 2, 4 * WALKED_ROUNDS);
    all.move = go_far_and_back;
    all.unfinished = 1;
    play_well(&all);
    assert_int_equal(all.actors[0].counts.rounds_empty, 1);
    for (size_t i = 0; i < 3000; i += 100) {
        double moved[2][WALKED_ROUNDS] = {{0}}, at[2];
        for (int r = 0; r < 2; r++)
            for (int step = 0; step < 4 * WALKED_ROUNDS; step++) moved[r][step / 4] += (double)noise(r, step, i);
        walk_with_a_lost_round(0.5, 0.9, moved, 0.25, at);
        for (int r = 0; r < 2; r++) assert_near(all.actors[r].weights[i], at[r], 1e-4);
    }
}

static float spoilt = NAN;

static void spoil(actor *self, int step)
{
    wander(self, step);
    if (self->rank == 1 && step == 1) self->weights[3] = spoilt;
}

/* It goes on from the shared weights at once, and gives to the rounds after. */
TEST(test_an_eager_rank_that_is_spoilt_is_healed)
{
    scene all = walk_of("local:every=4,eager=on", 3, 12);
    all.move = spoil;
    play_well(&all);
    assert_int_equal(all.actors[1].counts.offers_dropped, 1);
    for (size_t i = 0; i < 3000; i++) {
        double mean = 0.25;
        for (int step = 0; step < 12; step++)
            mean += step < 4 ? (noise(0, step, i) + noise(2, step, i)) / 2
                             : (noise(0, step, i) + noise(1, step, i) + noise(2, step, i)) / 3;
        assert_near(all.actors[1].shared[i], mean, 1e-6);
    }
}

/* ---- what the momentum makes of the means ----------------------------------------------------------------------- */

/* In each round both ranks move along a unit vector whose product with that of k rounds before is rate^k. */
static void move_by_chain(actor *self, int step)
{
    const double c = self->all->rate;
    const int round = step / 2;
    for (int i = 0; step % 2 == 0 && i <= round; i++)
        self->parts[0][i] -= (float)(pow(c, round - i) * (i == 0 ? 1 : sqrt(1 - c * c)));
}

static tw_outer_counts counts_of_chain(const char *spec, double cosine, int rounds)
{
    scene all = walk_of(spec, 2, 2 * rounds);
    all.move = move_by_chain;
    all.rate = cosine;
    play_well(&all);
    return all.actors[1].counts;
}

static void check_gain(const char *spec, double cosine, double gain, double energy)
{
    tw_outer_counts counts = counts_of_chain(spec, cosine, 60);
    assert_near(counts.cosine, cosine, 1e-4);
    if (gain > 0) assert_near(counts.gain, gain, 1e-3);
    assert_near(counts.energy, energy, 1e-3);
}

/* Golden values of the two sums over all rounds; 60 are enough. */
TEST(test_gain_and_energy_of_the_outer_step)
{
    check_gain("diloco:every=2,outer_momentum=0.9", 0.5622, 2.8218, 17.6395);
    check_gain("diloco:every=2,outer_momentum=0.9", 0.2498, 0, 10.0580);
    check_gain("diloco:every=2,outer_momentum=0.9", 0.3277, 0, 11.3826);
    check_gain("diloco:every=2,outer_momentum=0.5", 0.5622, 0, 2.9850);
    check_gain("diloco:every=2,outer_momentum=0.9", 0, 0, 7.0632);
    check_gain("diloco:every=2,outer_momentum=0.5", 0, 1.5, 2.3333);
    check_gain("diloco:every=2,outer_momentum=0.5,nesterov=off", 0, 1, 1.3333);
    check_gain("local:every=2", 0.5622, 1, 1);
    tw_outer_counts first = counts_of_chain("diloco:every=2,outer_momentum=0.5", 0.3, 1);
    assert_near(first.cosine, 0, 0); /* nothing was before */
    assert_near(first.gain, 1.5, 1e-6);
    assert_near(first.energy, 2.25, 1e-6);
}

static void move_far(actor *self, int step)
{
    self->parts[0][0] -= step % 2 ? 1e25F : 0;
}

static void move_once(actor *self, int step)
{
    self->parts[0][0] -= step < 2 ? 1 : 0;
}

TEST(test_figures_of_a_mean_without_a_square)
{
    void (*const moves[])(actor *, int) = {move_far, move_once};
    for (int i = 0; i < 2; i++) {
        scene all = walk_of("diloco:every=2,outer_momentum=0.5", 2, 4);
        all.move = moves[i];
        play_well(&all);
        assert_near(all.actors[0].counts.gain, 0, 0);
        assert_near(all.actors[0].counts.energy, 0, 0);
        assert_near(all.actors[0].counts.cosine, i == 0, 1e-6);
    }
}

/* Of two fragments one goes up and one goes down, in turn. */
TEST(test_cosines_are_of_the_same_tensors)
{
    scene all = quadratic("streaming:every=4,fragments=2,delay=0,mixing=0", 12, 1, 0.1, (double[]){2, 2});
    all.start[1] = 3;
    play_well(&all);
    assert_near(all.actors[0].counts.cosine, 1, 1e-6);
}

static int warnings;

static void count_warnings(void *context, tw_log_level level, const char *text)
{
    warnings += level == TW_LOG_WARNING && strstr(text, context) != NULL;
}

static int warnings_of(scene *all, char *text)
{
    warnings = 0;
    tw_set_log(count_warnings, text);
    play_well(all);
    tw_set_log(NULL, NULL);
    return warnings;
}

static void check_told(const char *spec, double rate, int rounds, int times)
{
    scene all = quadratic(spec, 10 * rounds, 1, rate, (double[]){0, 0});
    assert_int_equal(warnings_of(&all, "a smaller outer_lr"), times);
    for (int r = 0; r < 2; r++) assert_int_equal(all.actors[r].counts.rounds_unstable, times);
}

/* Ten local steps lead to the centre, and an outer rate of 2.5 farther beyond it each time. Where the local steps go
 * beyond it, a method without an outer rate has none to be told of. */
TEST(test_an_outer_step_that_is_too_long_is_told)
{
    check_told("diloco:every=10,outer_lr=1,outer_momentum=0", 0.5, 9, 0);
    check_told("diloco:every=10,outer_lr=2.5,outer_momentum=0", 0.5, 3, 0);
    check_told("diloco:every=10,outer_lr=2.5,outer_momentum=0", 0.5, 9, 1);
    check_told("diloco:every=1,outer_lr=1,outer_momentum=0", 1.9, 9, 1);
    check_told("local:every=1", 1.9, 9, 0);
}

/* ---- moments ----------------------------------------------------------------------------------------------------- */

static float next_moment(float moment, int m, int rank, int step, size_t i)
{
    float fresh = noise(rank, step, i);
    return m == 0 ? 0.9F * moment + fresh : 0.99F * moment + fresh * fresh;
}

static void wander_with_moments(actor *self, int step)
{
    wander(self, step);
    for (int m = 0; m < TW_MOMENTS; m++)
        for (size_t i = 0; i < self->all->first + self->all->second; i++)
            self->moments[m][i] = next_moment(self->moments[m][i], m, self->rank, step, i);
}

typedef struct moments_case {
    const char *spec;
    double tilt[3];
    int first[2];  /* the step after which each tensor has its first mean of each moment, */
    int then[2];   /* and how many steps it is to the next */
    int of_second; /* how much later it is the second tensor's turn */
} moments_case;

static tw_status weigh_tilted(actor *self, int step)
{
    (void)step;
    return tw_outer_set_weight(self->outer, self->all->tilt[self->rank]);
}

/* Of an element, by hand: each rank's moment after all steps. */
static void moments_of(const moments_case *of, int m, size_t i, double moment[3])
{
    int late = i < 3000 ? 0 : of->of_second;
    for (int r = 0; r < 3; r++) moment[r] = 0;
    for (int step = 0; step < 24; step++) {
        double sum = 0, weights = 0;
        for (int r = 0; r < 3; r++) {
            moment[r] = next_moment((float)moment[r], m, r, step, i);
            double weight = step < 1 ? 1 : of->tilt[r];
            sum += weight * moment[r];
            weights += weight;
        }
        int since = step + 1 - of->first[m] - late;
        for (int r = 0; r < 3 && since >= 0 && since % of->then[m] == 0; r++) moment[r] = sum / weights;
    }
}

static void check_moments(const moments_case *of)
{
    double golden[3];
    scene all = walk_of(of->spec, 3, 24);
    all.move = wander_with_moments;
    all.between = weigh_tilted;
    all.shows_moments = 1;
    for (int r = 0; r < 3; r++) all.tilt[r] = of->tilt[r];
    play_well(&all);
    for (int m = 0; m < TW_MOMENTS; m++)
        for (size_t i = 0; i < 3700; i++) {
            moments_of(of, m, i, golden);
            for (int r = 0; r < 3; r++) assert_near(all.actors[r].moments[m][i], golden[r], 1e-7);
        }
}

TEST(test_moments_become_the_mean_in_rounds_of_their_own)
{
    const moments_case cases[] = {
        {"local:every=2,first_moment=3,second_moment=4", {1, 1, 1}, {6, 8}, {6, 8}, 0},
        {"diloco:every=3,first_moment=1,second_moment=2,exchange=topk", {1, 2, 0}, {3, 6}, {3, 6}, 0},
        {"streaming:every=4,fragments=2,delay=0,first_moment=2,second_moment=3", {1, 1, 1}, {6, 10}, {8, 12}, 2},
        {"local:every=2,second_moment=4", {1, 1, 1}, {99, 8}, {1, 8}, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_moments(&cases[i]);
}

/* One rank's first moment is not finite in its last step before a mean: it stays where it is, and the second goes
 * on. */
static void spoil_a_moment(actor *self, int step)
{
    wander_with_moments(self, step);
    if (self->rank == 1 && step == 3) self->moments[0][5] = INFINITY;
}

TEST(test_moments_that_are_not_finite_stay)
{
    scene all = walk_of("local:every=4,first_moment=1,second_moment=1", 3, 4);
    all.move = spoil_a_moment;
    all.shows_moments = 1;
    play_well(&all);
    for (int r = 0; r < 3; r += 2) {
        float own = 0;
        for (int step = 0; step < 4; step++) own = next_moment(own, 0, r, step, 5);
        assert_near(all.actors[r].moments[0][5], own, 0);
    }
    assert_memory_equal(all.actors[0].moments[1], all.actors[1].moments[1], 3700 * sizeof(float));
    assert_true(all.actors[0].moments[0][0] != all.actors[1].moments[0][0]);
}

/* What cannot be shown takes nothing away: another list, or the other moment. */
TEST(test_moments_that_are_refused_change_nothing)
{
    static const tw_tensor table[] = {{.name = "a", .dims = 1, .shape = {1}}};
    float weight = 0, old[TW_MOMENTS] = {0}, other = 0;
    float *const weights[] = {&weight}, *const before[][1] = {{&old[0]}, {&old[1]}};
    float *const others[] = {&other}, *const nothing[] = {NULL};
    tw_outer *outer;
    tw_comm *comm;
    assert_ok(tw_comm_create_threads(1, &comm));
    assert_ok(tw_outer_create(comm, "local:every=2,first_moment=1,second_moment=1", table, 1, &outer));
    assert_ok(tw_outer_show_moments(outer, before[0], before[1]));
    assert_fails(tw_outer_show_moments(outer, others, nothing), TW_ERROR_ARGUMENT, "second_moment[0], of a");
    assert_fails(tw_outer_show_moments(outer, nothing, others), TW_ERROR_ARGUMENT, "first_moment[0], of a");
    for (long allocation = 1; allocation <= 2; allocation++) {
        tw_fail_allocation(allocation);
        assert_int_equal(tw_outer_show_moments(outer, others, others), TW_ERROR_MEMORY);
        tw_fail_allocation(0);
    }
    for (int m = 0; m < TW_MOMENTS; m++) assert_ptr_equal(outer->moments[m][0], &old[m]);
    assert_ok(tw_outer_begin(outer, weights));
    tw_outer_destroy(outer);
    tw_comm_destroy(comm);
}

TEST(test_moments_that_nobody_shows)
{
    scene all = walk_of("diloco:every=4,second_moment=6", 2, 4);
    play(&all);
    for (int r = 0; r < 2; r++)
        assert_non_null(strstr(all.actors[r].text, "second_moment=6, and tw_outer_show_moments"));
}

/* ---- means over those that sent --------------------------------------------------------------------------------*/

/* Elements that one rank sends move as it says, whatever the other weighs; and where all is sent, the mean over the
 * senders is the mean over those that gave something. */
TEST(test_senders_share_by_their_weights)
{
    const char *largest = "sparseloco:every=2,agg=senders,chunk=3000,k=1,values=fp32,min_elements=1",
               *all = "sparseloco:every=2,agg=senders,chunk=64,k=64,values=fp32,min_elements=1";
    const float across[2][2] = {{3, 0}, {0, 4}}, along[2][2] = {{3, 1}, {1, 2}};
    const double even[] = {1, 1}, uneven[] = {4, 1}, one[] = {1, 0};
    check_merge(largest, across, even, (double[]){3, 4});
    check_merge(largest, across, uneven, (double[]){3, 4});
    check_merge(largest, across, one, (double[]){3, 0});
    check_merge(all, along, uneven, (double[]){2.6, 1.2});
    check_merge(all, along, one, (double[]){3, 1});
}

/* Of two hosts of two workers one has a worker that gives nothing: the other speaks for it. */
TEST(test_senders_of_a_host_share_as_its_workers)
{
    const float apart[4][2] = {{9, 9}, {3, 0}, {0, 4}, {0, 2}};
    check_merge_of(4, "sparseloco:every=2,agg=senders,chunk=3000,k=1,values=fp32,min_elements=1,per_host=2", apart,
                   (double[]){0, 1, 1, 1}, (double[]){3, 3});
}

/* ---- what bf16 would notice -------------------------------------------------------------------------------------- */

static float as_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* One element of two ranks, by the equations. Returns how often something was sent. */
static int pulse_of_element(size_t i, int rounds, int every, float *theta, float kept[2])
{
    float v = 0;
    int sent = 0;
    kept[0] = kept[1] = 0;
    for (int round = 0; round < rounds; round++) {
        float mean = 0;
        for (int r = 0; r < 2; r++) {
            float weight = *theta;
            for (int step = round * every; step < (round + 1) * every; step++) weight += noise(r, step, i);
            kept[r] += *theta - weight;
            if (as_bf16(*theta) == as_bf16(*theta - kept[r])) continue;
            mean += kept[r] / 2;
            kept[r] = 0;
            sent++;
        }
        v = 0.5F * v + mean;
        *theta -= 0.7F * (mean + 0.5F * v);
    }
    return sent;
}

static tw_status save_in(actor *self, tw_state **saved)
{
    tw_status status = tw_state_create(saved);
    return status == TW_OK ? tw_outer_save_state(self->outer, "o/", *saved) : status;
}

static tw_state *states[3]; /* of each rank, when the last step is done */

static tw_status keep_last(actor *self, int step)
{
    return step == self->all->steps - 1 ? save_in(self, &states[self->rank]) : TW_OK;
}

TEST(test_pulse_sends_what_bf16_would_notice)
{
    enum { ROUNDS = 8, EVERY = 3, FIRST = 3000 };
    static float residual[2][FIRST];
    int sent = 0;
    scene all = walk_of("pulseloco:every=3,message_kb=1", 2, ROUNDS * EVERY); /* a message for each tensor */
    all.between = keep_last;
    play_well(&all);
    for (int r = 0; r < 2; r++) {
        assert_ok(tw_state_get(states[r], "o/exchange0/residual/first", TW_F32, FIRST, residual[r]));
        tw_state_destroy(states[r]);
    }
    for (size_t i = 0; i < FIRST; i++) {
        float theta = 0.25F, kept[2];
        sent += pulse_of_element(i, ROUNDS, EVERY, &theta, kept);
        assert_true(all.actors[1].shared[i] == theta);
        for (int r = 0; r < 2; r++) assert_true(2 * residual[r][i] == kept[r]); /* kept as a share of the mean */
    }
    assert_in_range(sent, FIRST, 2 * ROUNDS * FIRST - FIRST);
    for (size_t i = FIRST; i < FIRST + all.second; i++) {
        float theta = -0.5F, kept[2];
        pulse_of_element(i, ROUNDS, EVERY, &theta, kept);
        assert_true(all.actors[1].shared[i] == theta);
    }
}

static tw_state *saved_apart[MOST_RANKS], *in_parts[MOST_RANKS];

static tw_status keep_both(actor *self, int step)
{
    if (step < self->all->steps - 1) return TW_OK;
    tw_status status = save_in(self, &in_parts[self->rank]);
    if (status == TW_OK) status = tw_state_create(&saved_apart[self->rank]);
    return status == TW_OK ? tw_outer_save_apart(self->outer, "o/", saved_apart[self->rank]) : status;
}

/* One of what a state holds back of the first tensor, in fp32 or bf16. */
static double residual_at(const scene *all, const tw_state *held, size_t i)
{
    static float values[MOST_ELEMENTS];
    static uint16_t halves[MOST_ELEMENTS];
    static const char name[] = "o/exchange0/residual/first";
    if (!strstr(all->spec, "state=bf16")) {
        assert_ok(tw_state_get(held, name, TW_F32, all->first, values));
        return (double)values[i];
    }
    assert_ok(tw_state_get(held, name, TW_BF16, all->first, halves));
    return (double)tw_from_bf16(halves[i]);
}

/* Of an element: what all have given, less what theta has of it and what they hold back. */
static double missing(const scene *all, tw_state *const *held, size_t i)
{
    double sum = all->ranks * ((double)all->actors[0].shared[i] - all->start[0]);
    for (int r = 0; r < all->ranks; r++) {
        sum -= all->ranks * residual_at(all, held[r], i); /* a share of the mean */
        for (int step = 0; step < all->steps; step++) sum -= (double)noise(r, step, i);
    }
    return sum;
}

/* `rounds_off`: what all ranks' residuals lose where they are rounded. */
static void check_saved_apart(const char *spec, double rounds_off)
{
    double most = 0;
    int pieces = 0;
    scene all = walk_of(spec, 6, 6);
    all.between = keep_both;
    all.unfinished = 1;
    play_well(&all);
    for (size_t i = 0; i < all.first; i += 7) {
        assert_true(fabs(missing(&all, saved_apart, i)) < rounds_off);
        most = fmax(most, fabs(missing(&all, in_parts, i)));
    }
    assert_true(most > 10 * rounds_off);
    for (int r = 0; r < all.ranks; r++) {
        pieces += tw_state_has(in_parts[r], "o/exchange0/section/first");
        assert_false(tw_state_has(saved_apart[r], "o/exchange0/section/first"));
        tw_state_destroy(in_parts[r]);
        tw_state_destroy(saved_apart[r]);
    }
    assert_true(pieces > 1);
}

/* From five ranks on each sums a piece of every tensor, and what it keeps of that would mean nothing among four. */
TEST(test_what_is_saved_apart_has_a_place_among_any_number)
{
    check_saved_apart("local:every=2,exchange=e3m0,feedback=on,min_dims=1,min_elements=1", 1e-6);
    check_saved_apart("local:every=2,exchange=topk:exchange=scatter,density=0.05,state=bf16,min_dims=1,min_elements=1",
                      1e-3);
}

/* Of two fragments the second meets when all would. */
TEST(test_fragments_are_compared_with_their_own_weights)
{
    scene whole = walk_of("diloco:every=4,exchange=pulse", 2, 24),
          parts = walk_of("streaming:every=4,fragments=2,delay=0,mixing=0,exchange=pulse", 2, 24);
    play_both(&whole, &parts);
    assert_memory_equal(whole.actors[0].shared + whole.first, parts.actors[0].shared + whole.first,
                        whole.second * sizeof(float));
}

/* local: theta becomes the mean, which is theta minus the ranks' parts of what they moved, summed in rank order. */
TEST(test_local_takes_the_mean)
{
    enum { RANKS = 3, EVERY = 5 };
    scene all = walk_of("local:every=5", RANKS, EVERY);
    play_well(&all);
    for (size_t i = 0; i < 3700; i++) {
        float start = i < 3000 ? 0.25F : -0.5F, sum = 0;
        for (int r = 0; r < RANKS; r++) {
            float weight = start;
            for (int step = 0; step < EVERY; step++) weight += noise(r, step, i);
            sum += (start - weight) * (1.0F / RANKS);
        }
        assert_true(all.actors[1].shared[i] == start - sum);
    }
}

/* With one worker and no momentum: Lookahead. */
TEST(test_one_worker_looks_ahead)
{
    scene all = walk_of("diloco:every=3,outer_lr=0.5,outer_momentum=0", 1, 3);
    play_well(&all);
    for (size_t i = 0; i < 3000; i++) {
        float weight = 0.25F;
        for (int step = 0; step < 3; step++) weight += noise(0, step, i);
        assert_true(all.actors[0].shared[i] == 0.25F - 0.5F * (0.25F - weight));
    }
}

/* Magnitudes that make the order of a sum visible. */
static void leap(actor *self, int step)
{
    const float sizes[] = {1e8F, 1, -1e8F, 1e-3F};
    for (size_t i = 0; i < self->all->first; i++)
        self->weights[i] += sizes[((size_t)self->rank + i + (size_t)step) % 4] * (1 + noise(self->rank, step, i));
}

TEST(test_all_ranks_have_the_same_bits)
{
    scene all = walk_of("diloco:every=2", 4, 10);
    all.move = leap;
    play_well(&all); /* compares */
    for (int r = 1; r < 4; r++)
        assert_memory_equal(all.actors[0].history, all.actors[r].history, sizeof all.actors[0].history);
}

/* ---- ranks that are unlike --------------------------------------------------------------------------------------- */

/* Weights of 3 and 1 are three ranks like the first and one like the second. */
TEST(test_weights)
{
    scene all = quadratic("diloco:every=4,outer_lr=0.4,outer_momentum=0.9", 12, 1, 0.1, (double[]){2, -1}), many = all;
    all.between = weigh;
    all.tilt[0] = 3;
    all.tilt[1] = 1;
    many.ranks = 4;
    for (int r = 0; r < 4; r++) many.centre[r][0] = many.centre[r][1] = r < 3 ? 2 : -1;
    play_both(&all, &many);
    assert_near(all.actors[0].shared[0], many.actors[0].shared[0], 2e-6);
    assert_true(fabs(all.actors[0].shared[0] - 0.569) > 0.1); /* where both count alike */
}

/* The mean is over those that still have something; a second implementation counts rounds by hand. */
TEST(test_ranks_that_stop_early)
{
    scene all = walk_of("local:every=4", 3, 0);
    all.steps_of = fewer;
    play_well(&all);
    int taken[3] = {0}, most = 12;
    float theta = 0.25F;
    for (int round = 0; round < most; round++) {
        float sum = 0;
        int givers = 0;
        for (int r = 0; r < 3; r++) {
            int steps = fewer(&(actor){.rank = r}) - taken[r];
            float weight = theta;
            if (steps > 4) steps = 4;
            for (int step = taken[r]; step < taken[r] + steps; step++) weight += noise(r, step, 0);
            taken[r] += steps;
            givers += steps > 0;
            if (steps > 0) sum += theta - weight;
        }
        if (givers > 0) theta -= sum / 3 * (3.0F / (float)givers);
    }
    assert_near(all.actors[0].shared[0], theta, 1e-7);
    assert_true(all.actors[0].counts.rounds_empty <= 1);
}

/* A round of rank 0 that its finish has begun is one that rank 1's last step began. */
static void check_last_rounds(const char *spec, int (*steps_of)(const actor *))
{
    scene all = walk_of(spec, 3, 0);
    all.steps_of = steps_of;
    play_well(&all);
    for (int r = 1; r < 3; r++) assert_int_equal(all.actors[r].counts.rounds, all.actors[0].counts.rounds);
}

static int one_fewer(const actor *self)
{
    return self->rank == 0 ? 3 : 4;
}

static int one_more_each(const actor *self)
{
    return 3 + self->rank;
}

TEST(test_ranks_end_together_whatever_is_under_way)
{
    const char *const specs[] = {
        "streaming:every=4,fragments=1,delay=1",          "streaming:every=4,fragments=2,delay=1",
        "streaming:every=6,fragments=3,delay=1",          "streaming:every=8,fragments=2,delay=3",
        "streaming:every=6,fragments=2,delay=0",          "diloco:every=4",
        "streaming:every=4,fragments=1,delay=2,mixing=1", "diloco:every=4,eager=on"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        check_last_rounds(specs[i], one_fewer);
        check_last_rounds(specs[i], one_more_each);
        check_last_rounds(specs[i], fewer);
    }
}

/* One loop takes up where another one was, before a round of no tensors, when it has come to its end before. */
static tw_status end_again(tw_outer *before, tw_outer *outer, int rank, tw_state *state)
{
    float values[TENSORS] = {1, 2}, *weights[TENSORS] = {&values[0], &values[1]};
    tw_outer_event event;
    tw_status status = tw_outer_begin(before, weights);
    for (int step = 0; step < 4 && status == TW_OK; step++) status = tw_outer_step(before, weights, &event);
    if (status == TW_OK) status = tw_outer_save_state(before, "", state);
    if (status == TW_OK) status = tw_outer_begin(outer, weights);
    if (status == TW_OK) status = tw_outer_finish(outer, weights);
    if (status == TW_OK) status = tw_outer_load_state(outer, "", state);
    if (status == TW_OK) status = tw_outer_begin(outer, weights);
    for (int step = 0; step < 2 * rank && status == TW_OK; step++) status = tw_outer_step(outer, weights, &event);
    return status == TW_OK ? tw_outer_finish(outer, weights) : status;
}

static void live_again(void *context, int rank, tw_comm *comm)
{
    static const char spec[] = "streaming:every=6,fragments=3,delay=0";
    static const tw_tensor table[TENSORS] = {{.name = "first"}, {.name = "second"}};
    tw_outer_counts *counts = (tw_outer_counts *)context + rank;
    tw_outer *before = NULL, *outer = NULL;
    tw_state *state = NULL;
    counts->struct_size = sizeof *counts;
    if (tw_outer_create(comm, spec, table, TENSORS, &before) == TW_OK &&
        tw_outer_create(comm, spec, table, TENSORS, &outer) == TW_OK && tw_state_create(&state) == TW_OK &&
        end_again(before, outer, rank, state) == TW_OK)
        (void)tw_outer_stats(outer, counts);
    tw_state_destroy(state);
    tw_outer_destroy(outer);
    tw_outer_destroy(before);
}

TEST(test_ranks_end_together_a_second_time)
{
    tw_outer_counts counts[2] = {{0}};
    run_in_world((tw_world_options){.workers = 2}, live_again, counts);
    assert_true(counts[0].rounds > 2);
    assert_int_equal(counts[0].rounds, counts[1].rounds);
}

/* ---- between two steps all may meet ------------------------------------------------------------------------------ */

/* All do where they may, each behind the same step. A world ends where a rank waits for one that never comes. */
static tw_status meet(actor *self, int step)
{
    unsigned char own = (unsigned char)step, all[MOST_RANKS];
    if (!tw_outer_has_met(self->outer)) return TW_OK;
    self->met++;
    tw_status status = tw_comm_allgather(self->comm, &own, 1, all);
    for (int r = 0; status == TW_OK && r < self->all->ranks; r++) assert_int_equal(all[r], own);
    return status;
}

static tw_status save_and_meet(actor *self, int step)
{
    tw_status status = TW_OK;
    tw_state *state;
    if (step == 4) {
        assert_ok(tw_state_create(&state));
        status = tw_outer_save_state(self->outer, "", state);
        tw_state_destroy(state);
    }
    return status == TW_OK && step > 4 ? meet(self, step) : status;
}

static int twelve(const actor *self)
{
    return self->rank < 0 ? 0 : 12;
}

static int six_and_twelve(const actor *self)
{
    return self->rank == 1 ? 6 : 12;
}

static int nine_and_twelve(const actor *self)
{
    return self->rank == 1 ? 9 : 12;
}

static void check_met(const char *spec, int (*steps_of)(const actor *), tw_status (*between)(actor *, int), int met)
{
    scene all = walk_of(spec, 3, 0);
    all.steps_of = steps_of;
    all.between = between;
    play_well(&all);
    for (int r = 0; r < 3; r++)
        if (all.actors[r].met != met) fail_msg("%s: rank %d has met %d times, not %d", spec, r, all.actors[r].met, met);
}

/* Not with a rank that finishes, whether it gave its part before that or not; not behind a round of no tensors, of
 * which nobody speaks; nor in the step of a round that somebody's state has waited for. */
TEST(test_all_may_meet_behind_a_round)
{
    check_met("diloco:every=4", twelve, meet, 3);
    check_met("diloco:every=4", one_more_each, meet, 0);
    check_met("diloco:every=4", nine_and_twelve, meet, 2);
    check_met("diloco:every=4,eager=on", nine_and_twelve, meet, 1); /* what began at 8 is taken at 12 */
    check_met("streaming:every=8,fragments=2,delay=3", twelve, meet, 2);
    check_met("streaming:every=8,fragments=2,delay=3", six_and_twelve, meet, 0);
    check_met("streaming:every=8,fragments=2,delay=3", nine_and_twelve, meet, 1);
    check_met("streaming:every=8,fragments=4,delay=0", nine_and_twelve, meet, 2);
    check_met("streaming:every=8,fragments=2,delay=3", six_and_twelve, save_and_meet, 0);
    check_met("streaming:every=8,fragments=2,delay=3", nine_and_twelve, save_and_meet, 0);
    assert_int_equal(tw_outer_has_met(NULL), 0);
}

/* What a scheme holds back is in the unit of what goes in, whatever the weights are: they change in every step here,
 * and what the ranks walk is a few hundredths. */
static tw_status weigh_anew(actor *self, int step)
{
    return tw_outer_set_weight(self->outer, step % 2 ? 1000 : 1e-3);
}

TEST(test_weights_that_change_do_not_scale_what_is_held_back)
{
    scene all = walk_of("local:every=3,exchange=topk,density=0.3,min_elements=1,min_dims=1", 3, 30);
    all.between = weigh_anew;
    play_well(&all);
    for (size_t i = 0; i < 3000; i++) assert_near(all.actors[0].shared[i], 0.25, 0.2);
}

/* Who gives nothing keeps as much of its own weights as the others do. */
static tw_status give_nothing(actor *self, int step)
{
    (void)step;
    return self->rank == 0 ? tw_outer_set_weight(self->outer, 0) : TW_OK;
}

TEST(test_a_weight_of_0)
{
    scene all = quadratic("streaming:every=2,outer_lr=1,outer_momentum=0,fragments=1,delay=0,mixing=0.5", 2, 1, 0.1,
                          (double[]){2, -1});
    all.between = give_nothing;
    all.unfinished = 1;
    all.steps = 4;
    play_well(&all);
    double mine = 1, theirs = 1, theta = 1;
    for (int step = 0; step < 4; step++) {
        mine += 0.1 * (2 - mine);
        theirs += 0.1 * (-1 - theirs);
        if (step % 2 == 0) continue;
        theta = theirs;
        mine = (mine + theta) / 2;
        theirs = (theirs + theta) / 2;
    }
    assert_near(all.actors[0].weights[0], mine, 1e-6);
    assert_near(all.actors[1].shared[0], theta, 1e-6);
}

/* What fp16 cannot hold: the round comes to nothing, and who finishes with it is told. */
static void go_far(actor *self, int step)
{
    wander(self, step);
    self->weights[3] = 1e6F;
}

TEST(test_last_steps_that_are_lost_are_told)
{
    scene all = walk_of("local:every=4,exchange=fp16", 2, 3);
    all.move = go_far;
    play(&all);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(all.actors[r].status, TW_SKIPPED);
        assert_non_null(strstr(all.actors[r].text, "the last steps are lost"));
    }
}

/* What was lost before tw_outer_begin is not lost again. */
static tw_status begin_again(actor *self, int step)
{
    if (step != 2) return TW_OK;
    tw_status status = tw_outer_finish(self->outer, self->parts);
    return status == TW_SKIPPED ? tw_outer_begin(self->outer, self->parts) : TW_ERROR_ORDER;
}

TEST(test_steps_that_were_lost_are_told_once)
{
    scene all = walk_of("local:every=4,exchange=fp16", 2, 3);
    all.move = go_far;
    all.between = begin_again;
    play_well(&all);
}

/* Far in a round's last step alone. */
static void go_far_once(actor *self, int step)
{
    wander(self, step);
    if (self->rank == 1 && step == 3) self->weights[3200] = 1e6F;
}

static tw_status come_back(actor *self, int step)
{
    if (self->rank == 1 && step == 3) self->weights[3200] = -0.5F;
    return TW_OK;
}

static int three_and_five(const actor *self)
{
    return self->rank == 0 ? 3 : 5;
}

static void check_nothing_is_lost(const char *spec, int (*steps_of)(const actor *))
{
    scene all = walk_of(spec, 2, 4);
    all.move = go_far_once;
    all.between = come_back;
    all.steps_of = steps_of;
    play_well(&all);
    assert_true(all.actors[0].counts.rounds_empty >= 1);
}

/* A round that came to nothing, and then one of the same tensors that does not: before finish, over fragments without
 * tensors, and while one rank finishes and the other does not yet. */
TEST(test_steps_that_arrive_later_are_not_lost)
{
    check_nothing_is_lost("streaming:every=8,fragments=4,delay=0,mixing=0,exchange=fp16", NULL);
    check_nothing_is_lost("local:every=4,exchange=fp16", three_and_five);
}

/* What is not finite, or farther away than exchanges reach, stays where it is, and is healed. */
static void check_spoilt(float value)
{
    scene all = walk_of("local:every=4", 3, 4);
    all.move = spoil;
    spoilt = value;
    play_well(&all);
    spoilt = NAN;
    float sum = 0, weight[3] = {0.25F, 0, 0.25F};
    for (int r = 0; r < 3; r += 2) {
        for (int step = 0; step < 4; step++) weight[r] += noise(r, step, 3);
        sum += 0.25F - weight[r];
    }
    assert_near(all.actors[1].shared[3], 0.25F - sum / 2, 1e-7);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(all.actors[r].counts.offers_dropped, r == 1);
        assert_int_equal(all.actors[r].counts.rounds_empty, 1); /* of finish */
    }
    assert_memory_equal(all.actors[1].weights, all.actors[0].shared, sizeof all.actors[0].shared);
}

TEST(test_a_spoilt_rank_gives_nothing)
{
    check_spoilt(NAN);
    check_spoilt(1e34F);
    check_spoilt(2e26F); /* TW_FARTHEST / sqrt(3700) is less */
}

/* As a network does it: what one tensor's NaN has touched is NaN in all of them. */
static void spoil_all(actor *self, int step)
{
    int finite = 1;
    spoil(self, step);
    for (size_t i = 0; i < 3700; i++) finite &= isfinite(self->weights[i]) != 0;
    for (size_t i = 0; i < 3700 && !finite; i++) self->weights[i] = NAN;
}

/* The tensors meet in turn, after every second step; rank 1 is spoilt in the first round and has all of theta then.
 * What it gives afterwards is whole, also where it finishes at once and has nothing to give. */
static void check_whole_healing(int steps)
{
    scene all = walk_of("streaming:every=4,fragments=2,delay=0,mixing=0,outer_lr=1,outer_momentum=0", 3, steps);
    all.move = spoil_all;
    play_well(&all);
    assert_int_equal(all.actors[1].counts.offers_dropped, 1);
    for (size_t i = 0; i < 3700; i++) {
        double mean = i < 3000 ? 0.25 : -0.5;
        int counts_three = i >= 3000 && steps > 2; /* the second tensor's steps before are its round's, too */
        for (int step = 0; step < steps; step++) {
            double others = noise(0, step, i) + noise(2, step, i);
            if (step < 2)
                mean += others / (counts_three ? 3 : 2);
            else
                mean += (others + noise(1, step, i)) / 3;
        }
        assert_near(all.actors[1].weights[i], mean, 2e-6);
    }
}

TEST(test_a_spoilt_rank_is_healed_in_all_fragments)
{
    check_whole_healing(12);
    check_whole_healing(2);
}

static void spoil_all_ranks(actor *self, int step)
{
    wander(self, step);
    for (size_t i = 0; i < 3700 && step == 0; i++) self->weights[i] = NAN;
}

/* Nobody gives anything, and theta heals all the same. */
TEST(test_ranks_that_are_all_spoilt_are_healed)
{
    static const char *const specs[] = {"diloco:every=2", "streaming:every=4,fragments=2,delay=0",
                                        "streaming:every=4,fragments=2,delay=1"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        scene all = walk_of(specs[i], 2, 3);
        all.move = spoil_all_ranks;
        all.unfinished = 1;
        play_well(&all);
        const int delay = strstr(specs[i], "delay=1") != NULL;
        for (int r = 0; r < 2; r++) {
            assert_int_equal(all.actors[r].events[1 + delay], TW_OUTER_APPLIED);
            assert_int_equal(all.actors[r].counts.offers_dropped, 1);
            for (size_t e = 0; e < 3700; e++)
                assert_near(all.actors[r].weights[e], (e < 3000 ? 0.25 : -0.5) + (delay ? 0 : noise(r, 2, e)), 1e-7);
        }
    }
}

static tw_status corrupt(actor *self, int step)
{
    if (self->rank == 2 && step == 1) self->outer->theta[self->all->first + 5] += 1e-3F;
    return TW_OK;
}

/* A bit of memory has changed: the round after the next names the tensor, on all ranks. */
TEST(test_a_difference_is_found_and_named)
{
    scene all = walk_of("diloco:every=4", 3, 12);
    all.between = corrupt;
    play(&all);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(all.actors[r].status, TW_ERROR_STATE);
        assert_non_null(strstr(all.actors[r].text, "rank 2 has not the second that rank 0 has"));
    }
}

static void exchange_two(float *values)
{
    float one = values[5];
    values[5] = values[21];
    values[21] = one;
}

static void turn_two(float *values)
{
    values[5] = -values[5];
    values[21] = -values[21];
}

static void make_larger(float *values)
{
    for (int i = 0; i < 2048; i++) values[i] *= 4;
}

/* Of the first tensor's; what a round counts while it goes is what is counted afterwards. */
static tw_status change_and_back(actor *self, int step)
{
    (void)step;
    void (*const changes[])(float *) = {exchange_two, turn_two, make_larger};
    const tw_outer *outer = self->outer;
    const uint32_t before = outer->digests[0];
    int heeds = 1;
    if (outer->round == 0) return TW_OK; /* all elements are alike then */
    for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
        float was[2048];
        memcpy(was, outer->theta, sizeof was);
        changes[c](outer->theta);
        tw_outer_digest(outer);
        heeds &= outer->digests[0] != before;
        memcpy(outer->theta, was, sizeof was);
        tw_outer_digest(outer);
        heeds &= outer->digests[0] == before;
    }
    return heeds ? TW_OK : TW_ERROR_STATE;
}

enum { LONG = 3 * 2048 + 5 }; /* several blocks, and what is left behind the last */

typedef struct long_step {
    float mean[LONG], v[LONG], theta[LONG], weights[LONG];
    tw_outer_sums sums;
} long_step;

static void take_long_step(long_step *of, float mixing)
{
    tw_outer_options options = {.rate = 1};
    tw_outer_arrays arrays = {of->v, of->theta, of->weights, mixing};
    uint32_t digests[2];
    tw_outer_descend(&options, of->mean, LONG, &arrays, digests, &of->sums);
}

TEST(test_sums_count_each_element_once)
{
    static long_step one;
    for (size_t i = 0; i < LONG; i++) one.mean[i] = 1, one.v[i] = 2;
    take_long_step(&one, 0);
    assert_true(one.sums.mean == LONG && one.sums.momentum == 4 * LONG && one.sums.both == 2 * LONG);
}

TEST(test_each_element_keeps_its_part_of_the_weights)
{
    static long_step one;
    for (size_t i = 0; i < LONG; i++) one.mean[i] = -(float)i, one.weights[i] = 4;
    take_long_step(&one, 0.25F);
    for (size_t i = 0; i < LONG; i++) assert_true(one.theta[i] == (float)i && one.weights[i] == 1 + 0.75F * (float)i);
}

/* Differences that make up for each other in a sum: elements that change places, an even number of signs, and the
 * exponents of many elements. */
TEST(test_digests_heed_what_a_sum_does_not)
{
    scene all = walk_of("diloco:every=4", 2, 12);
    all.between = change_and_back;
    play_well(&all);
    assert_true(all.actors[0].shared[5] != all.actors[0].shared[21] && all.actors[0].shared[5] != 0);
}

/* ---- saving ------------------------------------------------------------------------------------------------------ */

/* Goes on as another loop, which is given what this one remembered; the weights are kept by hand. */
static tw_status go_on_from(actor *self, tw_status status, tw_state *saved)
{
    tw_outer_destroy(self->outer);
    self->outer = NULL;
    if (status == TW_OK) status = create(self);
    if (status == TW_OK) status = tw_outer_load_state(self->outer, "o/", saved);
    tw_state_destroy(saved);
    return status == TW_OK ? tw_outer_begin(self->outer, self->parts) : status;
}

static tw_status restart(actor *self, int step)
{
    tw_state *saved = NULL;
    if (step % 3 != 1) return TW_OK;
    tw_status status = save_in(self, &saved);
    return go_on_from(self, status, saved);
}

static void check_restart(const char *spec)
{
    scene whole = walk_of(spec, 3, 17), broken = walk_of(spec, 3, 17);
    broken.between = restart;
    play_both(&whole, &broken);
    for (int r = 0; r < 3; r++) {
        assert_memory_equal(whole.actors[r].history, broken.actors[r].history, sizeof whole.actors[r].history);
        assert_memory_equal(whole.actors[r].events, broken.actors[r].events, sizeof whole.actors[r].events);
        assert_memory_equal(whole.actors[r].weights, broken.actors[r].weights, sizeof whole.actors[r].weights);
    }
}

TEST(test_a_restart_changes_no_bit)
{
    check_restart("local:every=4");
    check_restart("sparseloco:every=5,chunk=64,k=3,min_elements=1");
    check_restart("pulseloco:every=5");
    check_restart("diloco:every=5,merge=rda");
    check_restart("diloco:every=5,eager=on");
    check_restart("sparseloco:every=5,eager=on,outer_momentum=0.5,chunk=64,k=3,min_elements=1");
    check_restart("pulseloco:every=5,eager=on");
    check_restart("streaming:every=6,fragments=2,delay=0,merge=rda");
    check_restart("streaming:every=6,fragments=2,delay=2,exchange=chunktopk");
    check_restart("diloco:every=5,exchange=topk,density=0.05,min_elements=1,min_dims=1");
    check_restart("streaming:every=6,fragments=2,delay=2,mixing=0.25,exchange=qsgd");
    check_restart("streaming:every=6,fragments=2,delay=1,exchange=topk,density=0.05,min_elements=1,min_dims=1");
}

/* Rank 1's weights are NaN when it gives: its round is under way in the state, and heals it afterwards. */
static void spoil_early(actor *self, int step)
{
    wander(self, step);
    if (self->rank == 1 && step == 2) self->weights[3] = NAN;
}

static tw_status restart_after_a_round_began(actor *self, int step)
{
    return step == 3 ? restart(self, 1) : TW_OK;
}

/* A new one, too. */
TEST(test_every_method_of_the_list)
{
    for (size_t m = 0; m < tw_outers_count(); m++) {
        char spec[64];
        snprintf(spec, sizeof spec, "%s:every=6", tw_outers_name(m));
        check_restart(spec);
        check_last_rounds(spec, one_fewer);
        check_last_rounds(spec, fewer);
        scene spoilt_walk = walk_of(spec, 3, 24), twice[2] = {walk_of(spec, 4, 24), walk_of(spec, 4, 24)};
        spoilt_walk.move = spoil_all;
        play_well(&spoilt_walk);
        for (size_t i = 0; i < 3700; i++) assert_true(isfinite(spoilt_walk.actors[1].weights[i]));
        play_both(&twice[0], &twice[1]);
        assert_memory_equal(twice[0].actors[3].history, twice[1].actors[0].history, sizeof twice[0].actors[0].history);
        assert_true(twice[0].actors[0].counts.rounds >= 4);
    }
}

TEST(test_a_restart_heals_as_well)
{
    scene whole = walk_of("streaming:every=3,fragments=1,delay=2,mixing=0.5", 2, 7), broken = walk_of(whole.spec, 2, 7);
    whole.move = broken.move = spoil_early;
    broken.between = restart_after_a_round_began;
    play_both(&whole, &broken);
    for (int r = 0; r < 2; r++)
        assert_memory_equal(whole.actors[r].weights, broken.actors[r].weights, sizeof whole.actors[r].weights);
    assert_true(isfinite(whole.actors[1].weights[3]));
    broken = walk_of("streaming:every=3,fragments=1,delay=2", 2, 5);
    broken.move = spoil_all_ranks;
    broken.between = restart_after_a_round_began; /* and has come to nothing */
    broken.unfinished = 1;
    play_well(&broken);
    for (int r = 0; r < 2; r++) assert_near(broken.actors[r].weights[3], 0.25, 0);
}

/* Rank 1 saves before a round, and rank 0 after it. */
static tw_status load_of_two_rounds(actor *self, int step)
{
    static tw_state *saved[2];
    if (step == 4 - 2 * self->rank) return save_in(self, &saved[self->rank]);
    return step == 5 ? go_on_from(self, TW_OK, saved[self->rank]) : TW_OK;
}

/* A state of another moment, on one rank alone. */
static tw_status load_other(actor *self, int step)
{
    static const float values[3000];
    tw_state *saved = NULL;
    if (step != 5) return TW_OK;
    tw_status status = save_in(self, &saved);
    if (status == TW_OK && self->rank == 1)
        status = tw_state_put(saved, "o/theta/first", TW_F32, 1, (size_t[]){self->all->first}, values);
    return go_on_from(self, status, saved);
}

static void check_moments_differ(const char *spec, tw_status (*load_apart)(actor *self, int step))
{
    scene all = walk_of(spec, 2, 8);
    all.between = load_apart;
    play(&all);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(all.actors[r].status, TW_ERROR_STATE);
        assert_non_null(strstr(all.actors[r].text, "of another run or moment"));
    }
}

TEST(test_states_must_be_of_one_moment)
{
    check_moments_differ("diloco:every=4", load_other);
    check_moments_differ("diloco:every=4", load_of_two_rounds);
}

/* Rank 1 has skipped a step, as a scaler does: since the last round it has taken one fewer. */
static tw_status restart_at_unlike_steps(actor *self, int step)
{
    return step % 20 == 4 - self->rank ? restart(self, 1) : TW_OK;
}

TEST(test_ranks_that_have_taken_unlike_steps_restart_together)
{
    static const char *const specs[] = {"diloco:every=20", "diloco:every=20,eager=on", "streaming:every=20,fragments=2",
                                        "sparseloco:every=20,chunk=64,k=3,min_elements=1"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        scene whole = walk_of(specs[i], 2, 42), broken = walk_of(specs[i], 2, 42);
        broken.between = restart_at_unlike_steps;
        play_both(&whole, &broken);
        for (int r = 0; r < 2; r++)
            assert_memory_equal(whole.actors[r].history, broken.actors[r].history, sizeof whole.actors[r].history);
    }
}

static int saves_at; /* the last rank's step, which has skipped none */

static tw_status save_once(actor *self, int step)
{
    tw_state *saved = NULL;
    if (step != saves_at - (self->rank == 1)) return TW_OK;
    tw_status status = save_in(self, &saved);
    tw_state_destroy(saved);
    return status;
}

static tw_status save_alone(actor *self, int step)
{
    return self->rank == 2 ? save_once(self, step) : TW_OK;
}

static tw_status save_and_load(actor *self, int step)
{
    if (step == saves_at - (self->rank == 1)) return save_in(self, &states[self->rank]);
    if (step < self->all->steps - 1) return TW_OK;
    return go_on_from(self, tw_outer_finish(self->outer, self->parts), states[self->rank]);
}

static void check_told_apart(const char *spec, int apart)
{
    scene all = walk_of(spec, 3, 17);
    all.between = save_once;
    if (warnings_of(&all, "of two moments with a round in between") != apart)
        fail_msg("%s, saved at step %d: %d warnings", spec, saves_at, warnings);
    all.between = save_alone;
    assert_int_equal(warnings_of(&all, "of two moments"), 0);
    all.between = save_and_load;
    play(&all);
    assert_int_equal(all.actors[1].status, apart ? TW_ERROR_STATE : TW_OK);
}

/* The others save at steps 2 to 7, and rank 1 at the one before: X, where a round is in between. */
TEST(test_states_of_two_moments_are_told_in_the_next_round)
{
    static const char *const rows[][2] = {{"diloco:every=4", ".X...X"},
                                          {"streaming:every=8,fragments=2,delay=2", ".X.X.X"},
                                          {"diloco:every=4,eager=on", ".X...X"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (saves_at = 2; rows[i][1][saves_at - 2]; saves_at++)
            check_told_apart(rows[i][0], rows[i][1][saves_at - 2] == 'X');
}

/* Three ranks' states become two's: what is shared stays, and of what the exchange holds back the sum does. */
static tw_status give_kept(void *context, int rank, const tw_state **state)
{
    (void)context;
    *state = states[rank];
    return TW_OK;
}

static double residual_sum(tw_state *const *of, int count)
{
    static float values[3000];
    double sum = 0;
    for (int r = 0; r < count; r++) {
        assert_ok(tw_state_get(of[r], "o/exchange0/residual/first", TW_F32, 3000, values));
        for (size_t i = 0; i < 3000; i++) sum += values[i];
    }
    return sum;
}

static void check_another_number(const char *spec)
{
    const tw_tensor table[TENSORS] = {{.name = "first", .dims = 1, .shape = {3000}},
                                      {.name = "second", .dims = 1, .shape = {700}}};
    static float theirs[3000], ours[3000];
    tw_state *fewer_states[2];
    scene all = walk_of(spec, 3, 8);
    all.between = keep_last;
    play_well(&all);
    for (int r = 0; r < 2; r++) {
        assert_ok(tw_state_create(&fewer_states[r]));
        assert_ok(tw_outer_regroup_state(spec, table, TENSORS, 3, give_kept, NULL, r, 2, "o/", fewer_states[r]));
        assert_ok(tw_state_get(states[2], "o/theta/first", TW_F32, 3000, theirs));
        assert_ok(tw_state_get(fewer_states[r], "o/theta/first", TW_F32, 3000, ours));
        assert_memory_equal(theirs, ours, sizeof ours);
        if (!strstr(spec, "eager=on")) continue;
        assert_ok(tw_state_get(fewer_states[r], "o/began/first", TW_F32, 3000, ours));
        assert_memory_equal(theirs, ours, sizeof ours);
    }
    assert_true(fabs(residual_sum(states, 3)) > 1e-3);
    assert_near(residual_sum(fewer_states, 2), residual_sum(states, 3), 1e-5);
    for (int r = 0; r < 3; r++) tw_state_destroy(states[r]);
    for (int r = 0; r < 2; r++) tw_state_destroy(fewer_states[r]);
}

TEST(test_another_number_of_ranks)
{
    check_another_number("diloco:every=4,exchange=topk,density=0.05,min_elements=1,min_dims=1");
    check_another_number("sparseloco:every=4");
    check_another_number("pulseloco:every=4");
    check_another_number("sparseloco:every=4,eager=on");
}

static tw_status give_one(void *context, int rank, const tw_state **state)
{
    (void)rank;
    *state = context;
    return TW_OK;
}

/* A new rank holds back zeros, which a load asks for, whatever the tensor is called and the prefix is. */
TEST(test_names_that_look_like_pieces)
{
    static const char spec[] = "local:every=1,exchange=topk,min_elements=1,min_dims=1", prefix[] = "a/section/";
    static const tw_tensor table[] = {{.name = "b/section/c", .dims = 1, .shape = {100}}};
    static float weights[100];
    float *const places[] = {weights};
    tw_state *saved, *given;
    tw_outer *outer;
    tw_comm *comm;
    assert_ok(tw_comm_create_threads(1, &comm));
    assert_ok(tw_outer_create(comm, spec, table, 1, &outer));
    assert_ok(tw_outer_begin(outer, places));
    assert_ok(tw_state_create(&saved));
    assert_ok(tw_state_create(&given));
    assert_ok(tw_outer_save_state(outer, prefix, saved));
    assert_ok(tw_outer_regroup_state(spec, table, 1, 1, give_one, saved, 1, 2, prefix, given));
    tw_outer_destroy(outer);
    assert_ok(tw_outer_create(comm, spec, table, 1, &outer));
    assert_ok(tw_outer_load_state(outer, prefix, given));
    tw_outer_destroy(outer);
    tw_comm_destroy(comm);
    tw_state_destroy(saved);
    tw_state_destroy(given);
}

/* ---- states that are refused ------------------------------------------------------------------------------------- */

enum { HELD = 64 };

static const tw_tensor held_table[TENSORS] = {{.name = "a", .dims = 1, .shape = {HELD}},
                                              {.name = "b", .dims = 1, .shape = {HELD}}};
static const char held_spec[] =
    "streaming:every=4,fragments=2,delay=0,exchange=topk,density=0.5,min_elements=1,min_dims=1";

/* One that has taken so many steps, with `turn` in them. */
static tw_outer *loop_after(tw_comm *comm, const char *spec, int steps, float turn)
{
    float weights[TENSORS][HELD], *places[] = {weights[0], weights[1]};
    tw_outer_event event;
    tw_outer *outer;
    assert_ok(tw_outer_create(comm, spec, held_table, TENSORS, &outer));
    for (size_t i = 0; steps > 0 && i < HELD; i++) weights[0][i] = weights[1][i] = turn * (float)i;
    if (steps > 0) assert_ok(tw_outer_begin(outer, places));
    for (int step = 0; step < steps; step++) {
        for (size_t i = 0; i < HELD; i++)
            weights[0][i] += turn / (float)(i + 1), weights[1][i] -= turn / (float)(i + 2);
        assert_ok(tw_outer_step(outer, places, &event));
    }
    return outer;
}

static tw_state *state_of(tw_outer *outer)
{
    tw_state *state;
    assert_ok(tw_state_create(&state));
    assert_ok(tw_outer_save_state(outer, "", state));
    return state;
}

/* One that has loaded, and not begun. */
static tw_outer *loaded_loop(tw_comm *comm, const char *spec)
{
    tw_outer *run = loop_after(comm, spec, 1, 0.5f), *outer = loop_after(comm, spec, 0, 0);
    tw_state *saved = state_of(run);
    assert_ok(tw_outer_load_state(outer, "", saved));
    tw_state_destroy(saved);
    tw_outer_destroy(run);
    return outer;
}

static void assert_same_states(const tw_state *a, const tw_state *b)
{
    assert_int_equal(tw_state_count(a), tw_state_count(b));
    for (size_t i = 0; i < tw_state_count(a); i++) {
        tw_state_entry one, other;
        assert_ok(tw_state_at(a, i, &one));
        assert_ok(tw_state_at(b, i, &other));
        assert_string_equal(one.name, other.name);
        assert_int_equal(one.bytes, other.bytes);
        assert_memory_equal(one.data, other.data, one.bytes);
    }
}

static void refuse_state(tw_outer *outer, const tw_state *state, const char *says)
{
    tw_state *before = state_of(outer), *after;
    assert_fails(tw_outer_load_state(outer, "", state), TW_ERROR_STATE, says);
    after = state_of(outer);
    assert_same_states(before, after);
    tw_state_destroy(before);
    tw_state_destroy(after);
}

/* Whatever is wrong in it, and wherever, the loop is as it was. */
TEST(test_a_refused_state_changes_nothing)
{
    static const char *const arrays[] = {"theta/b", "outer_momentum/a", "exchange1/residual/b"};
    const uint64_t wrong[] = {1 << 20, 2, 4,
                              2}; /* steps since a round, whether one has arrived, who moved, who heals */
    float values[HELD];
    uint64_t numbers[5];
    tw_comm *comm;
    assert_ok(tw_comm_create_threads(1, &comm));
    tw_outer *run = loop_after(comm, held_spec, 7, 0.25f), *outer = loaded_loop(comm, held_spec);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        tw_state *saved = state_of(run);
        assert_ok(tw_state_get(saved, arrays[i], TW_F32, HELD, values));
        values[HELD - 1] = NAN;
        assert_ok(tw_state_put(saved, arrays[i], TW_F32, 1, held_table[0].shape, values));
        refuse_state(outer, saved, "holds NaN");
        tw_state_destroy(saved);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tw_state *saved = state_of(run);
        assert_ok(tw_state_get(saved, "outer/numbers", TW_U64, 5, numbers));
        numbers[1 + i] = wrong[i];
        assert_ok(tw_state_put(saved, "outer/numbers", TW_U64, 1, (size_t[]){5}, numbers));
        refuse_state(outer, saved, "outer/numbers says");
        tw_state_destroy(saved);
    }
    tw_state *saved = state_of(run), *now;
    assert_ok(tw_outer_load_state(outer, "", saved));
    now = state_of(outer);
    assert_same_states(saved, now);
    tw_state_destroy(saved);
    tw_state_destroy(now);
    tw_outer_destroy(run);
    tw_outer_destroy(outer);
    tw_comm_destroy(comm);
}

/* Three steps after its round began a mean waits for a step to come; with a shorter delay that step is over. */
TEST(test_a_mean_is_loaded_where_a_step_still_takes_it)
{
    char spec[64], says[64];
    tw_comm *comm;
    assert_ok(tw_comm_create_threads(1, &comm));
    tw_outer *run = loop_after(comm, "streaming:every=6,fragments=1,delay=5", 9, 0.25f);
    tw_state *saved = state_of(run);
    for (int delay = 0; delay <= 5; delay++) {
        snprintf(spec, sizeof spec, "streaming:every=6,fragments=1,delay=%d", delay);
        snprintf(says, sizeof says, "3 steps after its round began, and delay=%d", delay);
        tw_outer *outer = loaded_loop(comm, spec);
        if (delay > 3)
            assert_ok(tw_outer_load_state(outer, "", saved));
        else
            refuse_state(outer, saved, says);
        tw_outer_destroy(outer);
    }
    tw_state_destroy(saved);
    tw_outer_destroy(run);
    tw_comm_destroy(comm);
}

/* ---- specs ------------------------------------------------------------------------------------------------------- */

static void refuse(const char *spec, const char *word)
{
    scene all = walk_of(spec, 1, 1);
    play(&all);
    if (all.actors[0].status == TW_OK) fail_msg("%s is taken", spec);
    if (!strstr(all.actors[0].text, word)) fail_msg("%s: \"%s\" should say \"%s\"", spec, all.actors[0].text, word);
}

static void assert_for_run(const char *spec, uint64_t steps, const char *expected)
{
    char text[256];
    assert_int_equal(tw_spec_for_run(spec, steps, text, sizeof text), strlen(expected));
    assert_string_equal(text, expected);
}

/* To the exchange a round is a step. */
TEST(test_the_exchange_follows_the_rounds_of_a_run)
{
    char dgc[256], expected[512];
    const char *spec = "diloco:every=50,exchange=dgc,momentum=0";
    tw_spec_for_run("dgc:momentum=0", 8000, dgc, sizeof dgc);
    snprintf(expected, sizeof expected, "%s%s", spec, dgc + strlen("dgc:momentum=0"));
    assert_true(strlen(expected) > strlen(spec) + 10);
    assert_for_run(spec, 400000, expected);
    assert_for_run("diloco:every=50,exchange=dgc,momentum=0,density=0.1,warmup_steps=3", 400000,
                   "diloco:every=50,exchange=dgc,momentum=0,density=0.1,warmup_steps=3");
    assert_for_run("diloco", 400000, "diloco");
    assert_for_run("diloco:every=x", 400000, "diloco:every=x");
}

/* The caller's weights stay what they are as long as there is nothing else. */
TEST(test_what_is_shared_is_read_once_there_is_any)
{
    static const tw_tensor one = {.name = "w", .dims = 1, .shape = {2}};
    float own[] = {3, 4}, read[] = {5, 6}, *weights[] = {own}, *shared[] = {read};
    tw_comm *comm;
    tw_outer *first, *second;
    tw_state *saved;
    assert_ok(tw_comm_create_threads(1, &comm));
    assert_ok(tw_outer_create(comm, "local:every=4", &one, 1, &first));
    assert_ok(tw_outer_create(comm, "local:every=4", &one, 1, &second));
    assert_ok(tw_state_create(&saved));
    assert_fails(tw_outer_read(first, shared), TW_ERROR_ORDER, "tw_outer_begin");
    assert_fails(tw_outer_save_state(first, "", saved), TW_ERROR_ORDER, "tw_outer_begin");
    assert_int_equal(tw_state_count(saved), 0);
    assert_true(read[0] == 5 && read[1] == 6);
    assert_ok(tw_outer_begin(first, weights));
    assert_ok(tw_outer_read(first, shared));
    assert_true(read[0] == 3 && read[1] == 4);
    assert_ok(tw_outer_save_state(first, "", saved));
    assert_ok(tw_outer_finish(first, weights));
    assert_ok(tw_outer_read(first, shared));
    assert_ok(tw_outer_load_state(second, "", saved));
    read[0] = 0;
    assert_ok(tw_outer_read(second, shared));
    assert_true(read[0] == 3);
    own[0] = NAN;
    assert_fails(tw_outer_begin(first, weights), TW_ERROR_ARGUMENT, "NaN");
    assert_fails(tw_outer_read(first, shared), TW_ERROR_ORDER, "tw_outer_begin");
    tw_comm_leave(comm);
    assert_int_equal(tw_outer_begin(second, weights), TW_ERROR_PEER);
    read[0] = 0;
    assert_ok(tw_outer_read(second, shared));
    assert_true(read[0] == 3);
    tw_state_destroy(saved);
    tw_outer_destroy(second);
    tw_outer_destroy(first);
    tw_comm_destroy(comm);
}

TEST(test_specs_that_are_refused)
{
    refuse("dilco", "there are: local, diloco, streaming, sparseloco, pulseloco");
    refuse("dgc", "schemes are for tw_reducer_create");
    refuse("streaming:merge=rda", "it takes delay=0");
    refuse("diloco:merge=rda,eager=on", "eager=off");
    refuse("streaming:delay=0,merge=rda,mixing=0.1", "it takes mixing=0");
    refuse("diloco:first_moment=3,eager=on", "eager=off");
    refuse("streaming:second_moment=3", "they take delay=0");
    refuse("sparseloco:agg=senders,eager=on", "eager=off");
    refuse("streaming:eager=on", "no option \"eager\"");
    refuse("streaming:exchange=chunktopk,agg=senders", "it takes delay=0");
    refuse("diloco:merge=median", "merge must be one of mean|rda");
    refuse("sparseloco:k=5000", "k=5000 is more than a chunk has, 4096");
    refuse("sparseloco:fragments=2", "no option \"fragments\"");
    refuse("diloco:evry=3", "no option \"evry\"");
    refuse("diloco:every=0", "every must be");
    refuse("diloco:every=1", "every=1 exchanges in every step");
    refuse("diloco:fragments=2", "no option \"fragments\"");
    refuse("local:outer_lr=0.5", "no option \"outer_lr\"");
    refuse("streaming:every=5,fragments=2", "every=6 or fragments=1 would do");
    refuse("streaming:every=20", "fragments=3 do not divide every=20");
    refuse("streaming:every=20", "every=21 or fragments=2 would do");
    refuse("streaming:every=4,fragments=2,delay=2", "is not below every / fragments = 2");
    refuse("diloco:exchange=none", "none");
    refuse("diloco:exchange=", "names no scheme");
    refuse("diloco:outer_lr=0", "outer_lr must be");
    refuse("diloco:exchange=dgc", "take exchange=topk, or, unless it is Adam's, write momentum=0");
    refuse("diloco:exchange=dgc-adam", "take exchange=topk, or, unless it is Adam's, write momentum=0");
    refuse("diloco:exchange=dgc-adam,momentum=0", "beta2=0.999 with momentum=0, which is Adam's beta1");
    refuse("diloco:exchange=onebit-adam,momentum=0", "beta2=0.999 with momentum=0, which is Adam's beta1");
    refuse("diloco:density=0.1", "no option \"density\"");
    refuse("diloco:exchange=topk,density=7", "density must be");
}

RUN_TESTS(NULL, free_actors)
