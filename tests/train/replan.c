/* A run that goes on by another spec: nothing of its gradients is lost, the bits are those of doing it by hand, and it
 * does so where its line becomes another and nowhere else. The line is one of virtual time. */
#include "replan.h"
#include "changes.h"
#include "checkpoint.h"
#include "exchange.h"
#include "run.h"
#include "support/listen.h"
#include "toy.h"
#include "world.h"

#include <math.h>

enum { RANKS = 3 };

/* ---- what is written down ---------------------------------------------------------------------------------------- */

TEST(test_changes_in_words)
{
    static const char *const wrong[] = {"",     "5",        "5 ",       "x bf16",   "-1 bf16",   "5 bf16;",
                                        "5  b", "5 bf16 6", "5 a; 5 b", "6 a; 5 b", "5 a;; 6 b", "5 bf16;7"};
    char longest[CHANGES_SPEC + 8] = "5 ";
    run_changes changes;
    assert_ok(changes_read(NULL, &changes));
    assert_int_equal(changes.count, 0);
    assert_ok(changes_read("5 diloco:every=20; 18446744073709551615 bf16", &changes));
    assert_int_equal(changes.count, 2);
    assert_string_equal(changes_before(&changes, "first", 5), "first");
    assert_string_equal(changes_before(&changes, "first", 6), "diloco:every=20");
    char *text = changes_text(&changes);
    assert_string_equal(text, "5 diloco:every=20; 18446744073709551615 bf16");
    free(text);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(changes_read(wrong[i], &changes), TW_ERROR_ARGUMENT, "STEP SPEC");
    memset(longest + 2, 'a', CHANGES_SPEC);
    assert_fails(changes_read(longest, &changes), TW_ERROR_ARGUMENT, "planned-changes");
    changes.count = 0;
    for (int i = 0; i < CHANGES_MOST; i++) assert_true(changes_add(&changes, (uint64_t)i, "bf16"));
    assert_false(changes_add(&changes, 99, "bf16"));
    text = changes_text(&changes);
    assert_ok(changes_read(text, &changes));
    assert_int_equal(changes.count, CHANGES_MOST);
    struct {
        run_changes changes;
        run_change beyond;
    } room = {.beyond.step = 7};
    char more[CHANGES_MOST * 16];
    snprintf(more, sizeof more, "%s; 99 bf16", text);
    assert_fails(changes_read(more, &room.changes), TW_ERROR_ARGUMENT, "32 at most");
    assert_int_equal(room.beyond.step, 7);
    free(text);
}

/* ---- nothing is lost --------------------------------------------------------------------------------------------- */

/* With plain SGD at a rate of 1, and gradients that no weight has a part in, a run ends where it began less all mean
 * gradients, if all of them have arrived. */
typedef struct path {
    const char *specs[4]; /* after so many steps each */
    uint64_t steps[4];
} path;

static const path paths[] = {
    {{"powersgd:rank=1,warmup_steps=0,min_elements=1,leftovers=fp32", "allreduce"}, {7, 2}},
    {{"topk:density=0.1,min_elements=1,min_sent=1,leftovers=fp32", "allreduce"}, {7, 2}},
    {{"randomk:density=0.2,min_elements=1,leftovers=fp32", "allreduce"}, {7, 2}},
    {{"local:every=4", "allreduce"}, {6, 3}},
    {{"topk:density=0.1,min_elements=1,min_sent=1,leftovers=fp32", "local:every=4", "allreduce"}, {5, 6, 1}},
    {{"powersgd:rank=1,warmup_steps=0,min_elements=1,leftovers=fp32", "topk:density=0.1,min_elements=1,leftovers=fp32",
      "local:every=2", "allreduce"},
     {3, 3, 3, 1}},
};

static double mean_gradients(uint64_t steps, size_t element)
{
    double sum = 0;
    for (uint64_t step = 0; step < steps; step++)
        for (size_t rank = 0; rank < RANKS; rank++) {
            toy_learner l = {.base.place.rank = rank};
            sum += (double)toy_draw(&l, step, element) / RANKS;
        }
    return sum;
}

static tw_status walk_path(crew_member *self)
{
    const path *p = self->context;
    worker *w = &self->worker;
    double loss;
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(w));
    for (size_t i = 0; i < 4 && p->specs[i]; i++) {
        const uint64_t until = w->step + p->steps[i];
        if (i > 0) TW_TRY(worker_switch(w, p->specs[i]));
        while (w->step < until) TW_TRY(worker_step(w, &loss));
    }
    return worker_end(w);
}

TEST(test_nothing_of_a_gradient_is_lost)
{
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        const path *p = &paths[k];
        const uint64_t steps = p->steps[0] + p->steps[1] + p->steps[2] + p->steps[3];
        char words[128];
        toy_run r = {0};
        snprintf(words, sizeof words, "--sync %s --steps 20", p->specs[0]);
        toy_play(&r, RANKS, walk_path, (void *)(uintptr_t)p, NULL, words);
        crew_must_succeed(r.crew, RANKS);
        for (int rank = 0; rank < RANKS; rank++)
            for (size_t i = 0; i < TOY_PARAMETERS; i++) {
                const double expected = (double)toy_start(i) - mean_gradients(steps, i);
                if (!(fabs((double)r.toy.log[rank].final[i] - expected) <= 1e-4))
                    fail_msg("%s: rank %d has %g in place %zu, not %g", p->specs[0], rank,
                             (double)r.toy.log[rank].final[i], i, expected);
            }
    }
}

/* ---- a step that is skipped right after a change ---------------------------------------------------------------- */

enum { SICK = 5, SICK_RANK = RANKS - 1 };

static float sick_gradient(const toy_learner *l, uint64_t step, size_t element)
{
    return step == SICK && l->base.place.rank == SICK_RANK ? NAN : toy_draw(l, step, element);
}

/* Its state goes into a file and back, as if the run had ended there. */
static tw_status skip_after_change(crew_member *self)
{
    worker *w = &self->worker;
    tw_state *state = NULL;
    double loss;
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(w));
    while (w->step < SICK) TW_TRY(worker_step(w, &loss));
    TW_TRY(worker_switch(w, self->context));
    TW_TRY(worker_step(w, &loss));
    assert_int_equal(w->skipped_in_a_row, 1);
    assert_non_null(w->pending);
    TW_TRY(tw_state_create(&state));
    assert_ok(checkpoint_pack_worker(w, state));
    free(w->pending);
    w->pending = NULL;
    assert_ok(checkpoint_unpack_worker(w, state));
    tw_state_destroy(state);
    while (w->step < 9) TW_TRY(worker_step(w, &loss));
    assert_null(w->pending);
    if (strcmp(self->context, "allreduce") != 0) TW_TRY(worker_switch(w, "allreduce"));
    return worker_step(w, &loss);
}

/* What was held back before it arrives once. Of that step healthy workers keep what the scheme compresses. They lose
 * what travels as it is, as the vector does. */
TEST(test_nothing_is_paid_twice)
{
    static const char *const specs[] = {"topk:density=0.3,min_elements=1,min_sent=1,leftovers=fp32", "allreduce"};
    for (size_t k = 0; k < 2; k++) {
        toy_run r = {.toy.gradient = sick_gradient};
        toy_play(&r, RANKS, skip_after_change, (void *)(uintptr_t)specs[k], NULL,
                 "--sync topk:density=0.1,min_elements=1,min_sent=1,leftovers=fp32 --steps 20");
        crew_must_succeed(r.crew, RANKS);
        for (size_t i = 0; i < TOY_PARAMETERS; i++) {
            double expected = (double)toy_start(i) - mean_gradients(10, i);
            for (size_t rank = k == 0 && i < TOY_MATRIX ? SICK_RANK : 0; rank < RANKS; rank++) {
                toy_learner l = {.base.place.rank = rank};
                expected += (double)toy_draw(&l, SICK, i) / RANKS;
            }
            for (int rank = 0; rank < RANKS; rank++) assert_near(r.toy.log[rank].final[i], expected, 1e-4);
        }
    }
}

/* ---- moments ----------------------------------------------------------------------------------------------------- */

typedef struct moments {
    float before[RANKS][2 * TOY_PARAMETERS], after[RANKS][2 * TOY_PARAMETERS];
} moments;

static void copy_moments(const worker *w, float *values)
{
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    optimiser_buffers(w->optimiser, buffers);
    for (int i = 0; i < 2; i++) memcpy(values + i * TOY_PARAMETERS, buffers[i].values, TOY_PARAMETERS * sizeof(float));
}

static tw_status leave_local_steps(crew_member *self)
{
    moments *m = self->context;
    worker *w = &self->worker;
    double loss;
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(w));
    while (w->step < 3) TW_TRY(worker_step(w, &loss));
    copy_moments(w, m->before[self->rank]);
    TW_TRY(worker_switch(w, "allreduce"));
    copy_moments(w, m->after[self->rank]);
    return TW_OK;
}

TEST(test_moments_become_their_mean)
{
    moments m;
    toy_run r = {0};
    toy_play(&r, RANKS, leave_local_steps, &m, NULL, "--sync local:every=4 --optimizer adam");
    crew_must_succeed(r.crew, RANKS);
    assert_memory_not_equal(m.before[0], m.before[1], sizeof m.before[0]);
    for (size_t i = 0; i < 2 * TOY_PARAMETERS; i++) {
        const float mean = (m.before[0][i] + m.before[1][i] + m.before[2][i]) / RANKS;
        for (int rank = 0; rank < RANKS; rank++) assert_near(m.after[rank][i], mean, 1e-6);
    }
}

/* ---- what cannot be left ----------------------------------------------------------------------------------------- */

static tw_status switch_at_once(crew_member *self)
{
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(&self->worker));
    return worker_switch(&self->worker, self->context);
}

TEST(test_what_cannot_be_left)
{
    static const char *const pairs[][3] = {{"dgc", "allreduce", "dgc has moments of its own"},
                                           {"allreduce", "dgc", "dgc has moments of its own"},
                                           {"allreduce", "sparseloco", "holds back"},
                                           {"local", "adpsgd-random", "at a step of its own"},
                                           {"allreduce", "nothing", "nothing"}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        char words[64];
        toy_run r = {0};
        snprintf(words, sizeof words, "--sync %s --momentum 0.9", pairs[k][0]);
        toy_play(&r, RANKS, switch_at_once, (void *)(uintptr_t)pairs[k][1], NULL, words);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_true(tw_status_is_error(r.crew[rank].status));
            if (!strstr(r.crew[rank].text, pairs[k][2])) fail_msg("%s: %s", pairs[k][0], r.crew[rank].text);
        }
    }
}

/* ---- the record -------------------------------------------------------------------------------------------------- */

static run_result results[RANKS];

static tw_status run_one(crew_member *self)
{
    return run_worker(self->settings, self->work, self->comm, &results[self->rank]);
}

/* A whole run that finds the changes in its settings has the bits of switching by hand. */
TEST(test_a_record_is_repeated)
{
    static const path by_hand = {{"powersgd:rank=1,min_elements=1", "bf16", "local:every=2"}, {5, 6, 9}};
    static char record[] = "5 bf16; 11 local:every=2";
    toy_run hand = {0}, run = {0};
    toy_play(&hand, RANKS, walk_path, (void *)(uintptr_t)&by_hand, NULL,
             "--sync powersgd:rank=1,min_elements=1 --steps 20");
    crew_must_succeed(hand.crew, RANKS);
    toy_begin(&run, &toy_task, NULL, "--sync powersgd:rank=1,min_elements=1 --steps 20 --check-every 0");
    run.settings.planned_changes = record;
    crew_run(run.crew, RANKS, (crew_member){.play = run_one, .settings = &run.settings, .work = &run.toy.base});
    crew_must_succeed(run.crew, RANKS);
    run.settings.planned_changes = NULL;
    toy_end(&run);
    for (int rank = 0; rank < RANKS; rank++)
        assert_memory_equal(run.toy.log[rank].final, hand.toy.log[rank].final, sizeof run.toy.log[rank].final);
}

/* ---- a line that falls and comes back ---------------------------------------------------------------------------- */

enum { LONG = 900, FALL = 300, RISE = 600, WINDOW = 32 };
#define RATE 1000.0 /* bytes a second, of which a step of the toy sends some hundred */
#define SLOW_SPEC "topk:density=0.3,min_elements=1"

typedef struct journey {
    toy_run run;
    tw_world *world;
    struct pager *pager; /* when it begins */
    double noise;        /* a pass takes 1 - noise to 1 + noise of what it takes else */
    run_changes changes, by_hand;
    float final[2][TOY_PARAMETERS];
    tw_status status[RANKS];
    char text[RANKS][512];
    const char *why;        /* of each choice, which is then told */
    int calls;              /* plans made, on rank 0 */
    int lopsided;           /* of a line whose ways were not alike */
    double timeouts[RANKS]; /* at the end */
} journey;

static journey *travelled;

/* In place of a plan, which has a world of its own. */
static tw_status choose_by_rate(worker *w, const tw_world_options *line, replan_choice *choice)
{
    (void)w;
    travelled->calls++;
    travelled->lopsided |= line->bandwidth_down != line->bandwidth;
    snprintf(choice->sync, sizeof choice->sync, "%s", line->bandwidth < RATE / 2 ? SLOW_SPEC : "allreduce");
    snprintf(choice->why, sizeof choice->why, "%s", travelled->why ? travelled->why : "");
    return TW_OK;
}

static void shape(const journey *j, uint64_t step)
{
    tw_network *network = &j->world->network;
    if (step == FALL) network->bandwidth = network->bandwidth_down = RATE / 10;
    if (step == RISE) network->bandwidth = network->bandwidth_down = RATE;
}

static double pass_of(const journey *j, int rank, uint64_t step)
{
    uint32_t words[4];
    tw_random(11, (uint64_t)rank, step, words);
    return 0.2 * (1 + j->noise * (2 * (double)words[0] / UINT32_MAX - 1));
}

static tw_status travel_alone(journey *j, worker *w)
{
    double loss;
    replan r;
    TW_TRY(worker_begin(w));
    w->pager = j->pager;
    TW_TRY(replan_begin(&r, w));
    w->pager = NULL;
    r.choose = choose_by_rate;
    tw_status status = TW_OK;
    while (w->step < LONG && status == TW_OK) {
        if (w->rank == 0) shape(j, w->step);
        tw_world_compute(pass_of(j, w->rank, w->step));
        status = replan_before_step(&r, w);
        if (status == TW_OK) status = worker_step(w, &loss);
    }
    replan_end(&r);
    return status;
}

static void travel(void *context, int rank, tw_comm *comm)
{
    journey *j = context;
    worker w = {0};
    j->status[rank] = worker_create(&j->run.settings, &j->run.toy.base, comm, &w);
    if (j->status[rank] == TW_OK) j->status[rank] = travel_alone(j, &w);
    if (j->status[rank] != TW_OK) snprintf(j->text[rank], sizeof j->text[rank], "%s", tw_last_error());
    j->timeouts[rank] = tw_comm_timeout(comm);
    if (rank == 0) j->changes = w.changes;
    if (rank == 0) memcpy(j->final[0], w.learner->parameters, sizeof j->final[0]);
    worker_release(&w);
}

static tw_status repeat(crew_member *self)
{
    const run_changes *changes = self->context;
    worker *w = &self->worker;
    double loss;
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(w));
    size_t i = 0;
    while (w->step < LONG) {
        if (i < changes->count && changes->all[i].step == w->step) TW_TRY(worker_switch(w, changes->all[i++].spec));
        TW_TRY(worker_step(w, &loss));
    }
    return TW_OK;
}

static tw_status no_step(toy *t, toy_learner *l, uint64_t step)
{
    (void)step;
    t->log[l->base.place.rank].step_count = 0; /* which has room for few */
    return TW_OK;
}

static void go(journey *j, char *out)
{
    static char planned[32];
    const tw_world_options line = {.struct_size = sizeof line, .workers = RANKS, .bandwidth = RATE, .latency = 0.001};
    snprintf(planned, sizeof planned, "8kbit,1ms");
    travelled = j;
    j->run.toy.before = no_step;
    toy_begin(&j->run, &toy_task, NULL, "--sync allreduce --steps 900 --lr 0.01");
    j->run.settings.planned_link = planned;
    j->run.settings.quiet = !j->why;
    j->run.settings.out = out;
    assert_ok(tw_world_create(&line, &j->world));
    assert_ok(tw_world_run(j->world, travel, j));
    tw_world_destroy(j->world);
    for (int rank = 0; rank < RANKS; rank++)
        if (j->status[rank] != TW_OK) fail_msg("rank %d: %s", rank, j->text[rank]);
    j->run.settings.planned_link = j->run.settings.out = NULL;
    toy_end(&j->run);
}

/* Whichever line is read next. */
static void assert_told(FILE *told, uint64_t step, const char *lines, const char *rest)
{
    char line[512], begin[64];
    if (!fgets(line, sizeof line, told)) fail_msg("nobody said \"%s\"", rest);
    snprintf(begin, sizeof begin, "thinwire: step %llu: the line is ", (unsigned long long)step);
    if (strncmp(line, begin, strlen(begin)) != 0 || !strstr(line, lines) || !strstr(line, rest))
        fail_msg("said: %s", line);
}

/* Once each way, within four windows, for passes that differ by 40 % to either side; by hand it has the same bits. Rank
 * 0 says so, once each. */
TEST(test_it_goes_on_by_what_suits_the_line)
{
    char line[8];
    journey j = {.noise = 0.4, .why = "It is faster."};
    toy_run hand = {.toy.before = no_step};
    listening l = listen_begin();
    go(&j, NULL);
    FILE *told = listen_end(l);
    assert_told(told, j.changes.all[0].step, "ms now, and was 0.008Mbit,1ms. ",
                "--sync auto goes on with " SLOW_SPEC " in place of allreduce. It is faster.\n");
    assert_told(told, j.changes.all[1].step, "ms now, and was 0.000",
                "--sync auto goes on with allreduce in place of " SLOW_SPEC ". It is faster.\n");
    assert_null(fgets(line, sizeof line, told));
    fclose(told);
    assert_int_equal(j.changes.count, 2);
    assert_string_equal(j.changes.all[0].spec, SLOW_SPEC);
    assert_string_equal(j.changes.all[1].spec, "allreduce");
    assert_in_range(j.changes.all[0].step, FALL + WINDOW, FALL + 4 * WINDOW);
    assert_in_range(j.changes.all[1].step, RISE + WINDOW, RISE + 4 * WINDOW);
    assert_int_equal(j.calls, 2);
    assert_int_equal(j.lopsided, 0);
    for (int rank = 0; rank < RANKS; rank++) assert_true(j.timeouts[rank] == j.run.settings.timeout);
    toy_play(&hand, RANKS, repeat, &j.changes, NULL, "--sync allreduce --steps 900 --lr 0.01");
    crew_must_succeed(hand.crew, RANKS);
    assert_memory_equal(hand.toy.log[0].final, j.final[0], sizeof j.final[0]);
}

/* A run that could not repeat it does not do it. */
TEST(test_what_cannot_be_written_down_is_not_done)
{
    static char nowhere[] = "/dev/null/run";
    journey j = {.noise = 0};
    go(&j, nowhere);
    assert_int_equal(j.calls, 1);
    assert_int_equal(j.changes.count, 0);
}

/* Of a network in parts, which another spec would have in memory as a whole. */
TEST(test_a_paged_network_keeps_its_spec)
{
    int nothing;
    journey j = {.pager = (struct pager *)(void *)&nothing};
    go(&j, NULL);
    assert_int_equal(j.calls, 0);
}

RUN_TESTS(NULL, NULL)
