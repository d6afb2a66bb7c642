/* A pipeline of stages against a page of arithmetic: a chain of numbers, each a layer that multiplies, whose every
 * weight after every step follows from which weights each micro-batch has met. And the cut, and halves. */
#include "crew.h"
#include "exchange_pipeline.h"
#include "liar.h"
#include "pipeline_plan.h"
#include "progress.h"
#include "stage_line.h"
#include "toy.h"
#include <thinwire/thinwire_sim.h>
#include <time.h>

enum { UNITS = 5, PARAMETERS = 6, STEPS = 14, REST = 6, MOST_STAGES = 4 };

#define RATE 0.0625f

static float input_of(uint64_t step)
{
    return 0.5f + (float)(step * 5 % 7) / 8;
}

static float target_of(uint64_t step)
{
    return (float)(step * 3 % 5) / 4 - 0.5f;
}

static float start_of(size_t unit)
{
    return 0.75f + (float)unit / 16;
}

/* Among the parameters. The fourth unit has two, and uses the first of them. */
static size_t place_of(size_t unit)
{
    return unit < 4 ? unit : unit + 1;
}

/* ---- the chain as a task ---- */

typedef struct chain_learner {
    learner base;
    float weights[PARAMETERS], gradients[PARAMETERS], statistics[UNITS], met[UNITS], dx;
} chain_learner;

static const tw_tensor chain_tensors[] = {{"a", 1, {1}}, {"b", 1, {1}}, {"c", 1, {1}}, {"d", 1, {2}}, {"e", 1, {1}}};
static const tw_tensor chain_statistics[] = {{"A", 1, {1}}, {"B", 1, {1}}, {"C", 1, {1}}, {"D", 1, {1}}, {"E", 1, {1}}};
static const nn_unit chain_units[] = {{1, 1}, {2, 2}, {3, 3}, {5, 4}, {6, 5}};
static uint64_t sick = UINT64_MAX;  /* the micro-batch whose target is no number */
static uint64_t apart = UINT64_MAX; /* that of which the last stage alone has such gradients */
static double call_seconds[2];      /* in a world: of a call of the first stage, and of another */

static tw_status chain_open(learner *base)
{
    chain_learner *l = (chain_learner *)base;
    base->model = "chain";
    base->tensors = chain_tensors;
    base->buffer_tensors = chain_statistics;
    base->tensor_count = base->buffer_tensor_count = base->unit_count = UNITS;
    base->parameter_count = PARAMETERS;
    base->buffer_count = UNITS;
    base->parameters = l->weights;
    base->gradients = l->gradients;
    base->buffers = l->statistics;
    base->units = chain_units;
    base->steps_per_epoch = STEPS;
    for (size_t u = base->place.stage->first; u < base->place.stage->end; u++) l->weights[place_of(u)] = start_of(u);
    return TW_OK;
}

static void chain_close(learner *base)
{
    (void)base;
}

/* The statistics count what goes forward. */
static tw_status chain_step(learner *base, uint64_t step, learner_gradient_ready ready, void *context,
                            task_score *score)
{
    chain_learner *l = (chain_learner *)base;
    const nn_stage *stage = base->place.stage;
    float x = input_of(step), dy = 0;
    int back = 1;
    (void)ready, (void)context;
    if (stage->first > 0) TW_TRY(stage->receive(stage->context, &x, 1));
    if (call_seconds[0] > 0) tw_world_compute(call_seconds[stage->first > 0]);
    for (size_t u = stage->first; u < stage->end; u++) {
        l->met[u] = x;
        l->statistics[u] += 1;
        x = l->weights[place_of(u)] * x;
    }
    *score = (task_score){0};
    if (stage->end < UNITS) {
        TW_TRY(stage->send(stage->context, &x, 1, &dy, &back));
        if (!back) return TW_OK;
    } else {
        dy = x - (step == sick ? NAN : target_of(step));
        *score = (task_score){.loss = (double)(dy * dy) / 2, .count = 1};
    }
    for (size_t u = stage->end; u-- > stage->first;) {
        l->gradients[place_of(u)] = step == apart && stage->end == UNITS ? NAN : dy * l->met[u];
        dy = dy * l->weights[place_of(u)];
    }
    l->dx = dy;
    return stage->first > 0 ? stage->send_back(stage->context, &l->dx, 1) : TW_OK;
}

enum { LOOKS = 40, ASKED = 5 };
static int asker = -1; /* the stage that is asked to stop as it comes to batch ASKED of an evaluation; -1: none is */

static tw_status chain_evaluate(learner *base, task_split split, size_t part, size_t parts, task_score *score)
{
    chain_learner *l = (chain_learner *)base;
    const nn_stage *stage = base->place.stage;
    worker *w = stage->context;
    (void)split, (void)part, (void)parts;
    for (size_t i = 0; i < LOOKS && !learner_stops(base); i++) {
        float x = input_of(i);
        w->stops |= w->rank == asker && i == ASKED;
        if (stage->first > 0) TW_TRY(stage->receive(stage->context, &x, 1));
        for (size_t u = stage->first; u < stage->end; u++) x = l->weights[place_of(u)] * x;
        if (stage->end < UNITS) TW_TRY(stage->send(stage->context, &x, 1, NULL, NULL));
        task_score_add(score, &(task_score){.loss = stage->end < UNITS ? 0 : (double)x, .count = 1});
    }
    return TW_OK;
}

static const task_ops chain_task = {.name = "toy",
                                    .summary = "a chain of numbers",
                                    .load = toy_load,
                                    .release = toy_release,
                                    .fits = toy_fits,
                                    .learner_bytes = sizeof(chain_learner),
                                    .open = chain_open,
                                    .close = chain_close,
                                    .step = chain_step,
                                    .evaluate = chain_evaluate};

/* ---- the page of arithmetic ---- */

typedef struct page {
    double weights[STEPS + 1][UNITS], speeds[STEPS + 1][UNITS], loss[STEPS];
} page;

/* A micro-batch of a stretch that began with micro-batch `begin` goes forth, in a stage with so many behind it, when as
 * many fewer are back, but not before the stretch. It meets the weights of the steps that these have made, with the
 * speed of then for the steps until its own. */
static size_t version_of(size_t batch, size_t behind, size_t begin)
{
    return batch - begin < behind ? begin : batch - behind;
}

typedef struct course {
    const char *cut;
    size_t stages, ends[MOST_STAGES], each; /* micro-batches a step */
    double momentum, clip;
} course;

static double scale_of(const course *c, const double *gradient, size_t unit)
{
    double squares = 0;
    size_t s = 0;
    while (unit >= c->ends[s]) s++;
    for (size_t u = s ? c->ends[s - 1] : 0; u < c->ends[s]; u++) squares += gradient[u] * gradient[u];
    return c->clip > 0 && squares > c->clip * c->clip ? c->clip / sqrt(squares) : 1;
}

/* By the mean of a step's micro-batches, which each stage clips by itself; with one that is no number it is none. */
static void take_step(const course *c, size_t step, const double *gradient, page *p)
{
    const int skips = sick / c->each == step;
    for (size_t u = 0; u < UNITS; u++) {
        const double speed = c->momentum * p->speeds[step][u] + gradient[u] * scale_of(c, gradient, u);
        p->speeds[step + 1][u] = skips ? p->speeds[step][u] : speed;
        p->weights[step + 1][u] = p->weights[step][u] - (skips ? 0 : (double)RATE * speed);
    }
}

static void work_out(const course *c, page *p)
{
    double gradient[UNITS];
    *p = (page){0};
    for (size_t u = 0; u < UNITS; u++) p->weights[0][u] = (double)start_of(u);
    for (size_t m = 0; m < STEPS; m++) {
        const size_t step = m / c->each;
        double used[UNITS], before[UNITS + 1] = {(double)input_of(m)}, slope;
        for (size_t u = 0, s = 0; u < UNITS; u++) {
            if (u == c->ends[s]) s++;
            const size_t version = version_of(m, c->stages - 1 - s, m < REST ? 0 : REST) / c->each;
            const double far = c->momentum > 0 ? (double)RATE * (double)(step - version) : 0;
            used[u] = p->weights[version][u] - far * p->speeds[version][u];
            before[u + 1] = before[u] * used[u];
        }
        slope = before[UNITS] - (double)target_of(m);
        p->loss[step] += slope * slope / 2 / (double)c->each;
        for (size_t u = UNITS; u-- > 0; slope *= used[u])
            gradient[u] = (m % c->each ? gradient[u] : 0) + slope * before[u] / (double)c->each;
        if (m % c->each == c->each - 1) take_step(c, step, gradient, p);
    }
}

/* ---- both ---- */

typedef struct seen {
    float weights[MOST_STAGES][STEPS + 1][PARAMETERS], gathered[PARAMETERS], statistics[UNITS];
    double loss[STEPS], skipped[MOST_STAGES];
    int met[STEPS + 1][MOST_STAGES];
    course course;
} seen;

static tw_status play_chain(crew_member *self)
{
    worker *w = &self->worker;
    seen *all = self->context;
    const size_t each = all->course.each;
    totals sums = {0};
    double loss;
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(w));
    for (size_t m = 0; m < STEPS / each; m++) {
        all->met[m][self->rank] = w->exchange->meets(w);
        w->rest = (m < REST / each ? REST : STEPS) / each;
        TW_TRY(worker_step(w, &loss));
        memcpy(all->weights[self->rank][m + 1], w->learner->parameters, sizeof all->gathered);
        if (self->rank == 0) all->loss[m] = loss;
    }
    TW_TRY(w->exchange->add_totals(w, &sums));
    all->skipped[self->rank] = sums.values[TOTAL_STEPS_SKIPPED];
    TW_TRY(worker_average_buffers(w));
    TW_TRY(worker_settle(w));
    if (self->rank == 0) memcpy(all->gathered, w->learner->parameters, sizeof all->gathered);
    if (self->rank == 0) memcpy(all->statistics, w->mean_buffers, sizeof all->statistics);
    return TW_OK;
}

static void compare(const seen *all, const page *p)
{
    const course *c = &all->course;
    for (size_t m = 0; m < STEPS / c->each; m++) {
        if (m != sick / c->each) assert_near(all->loss[m], p->loss[m], 1e-6);
        for (size_t u = 0, s = 0; u < UNITS; u++) {
            if (u == c->ends[s]) s++;
            assert_near((double)all->weights[s][m + 1][place_of(u)], p->weights[m + 1][u], 1e-5);
        }
        for (size_t s = 0; s < c->stages; s++)
            assert_int_equal(all->met[m][s], m == 0 || m == REST / c->each || c->stages == 1);
    }
    for (size_t s = 0; s < c->stages; s++) assert_int_equal((int)all->skipped[s], sick < STEPS);
    for (size_t u = 0; u < UNITS; u++) {
        assert_near((double)all->gathered[place_of(u)], p->weights[STEPS / c->each][u], 1e-5);
        assert_int_equal((int)all->statistics[u], STEPS); /* each micro-batch once, though it is computed again */
    }
}

static void play_course(const course *c, tw_status (*play)(crew_member *self), seen *all)
{
    static toy_run r;
    crew_member crew[CREW_MOST];
    char words[160];
    r = (toy_run){0};
    *all = (seen){.course = *c};
    snprintf(words, sizeof words, "--lr %g --momentum %g --clip %g --pipeline stages=%zu,cut=%s,accumulate=%zu",
             (double)RATE, c->momentum, c->clip, c->stages, c->cut, c->each);
    toy_begin(&r, &chain_task, NULL, words);
    crew_run(crew, (int)c->stages,
             (crew_member){.play = play, .settings = &r.settings, .work = &r.toy.base, .context = all});
    toy_end(&r);
    crew_must_succeed(crew, (int)c->stages);
}

static void run_chain(course c)
{
    static seen all;
    static page p;
    play_course(&c, play_chain, &all);
    work_out(&c, &p);
    compare(&all, &p);
}

TEST(test_each_weight_follows_from_its_staleness)
{
    run_chain((course){"5", 1, {5}, 1, 0, 0});
    run_chain((course){"2+3", 2, {2, 5}, 1, 0, 0});
    run_chain((course){"1+2+2", 3, {1, 3, 5}, 1, 0.5, 0});
    run_chain((course){"2+1+1+1", 4, {2, 3, 4, 5}, 1, 0, 0});
    run_chain((course){"2+1+1+1", 4, {2, 3, 4, 5}, 1, 0.5, 0});
}

TEST(test_a_step_of_several_micro_batches)
{
    run_chain((course){"5", 1, {5}, 2, 0.5, 0});
    run_chain((course){"2+3", 2, {2, 5}, 2, 0, 0});
    run_chain((course){"2+1+1+1", 4, {2, 3, 4, 5}, 2, 0.5, 0});
}

TEST(test_each_stage_clips_by_itself)
{
    run_chain((course){"1+2+2", 3, {1, 3, 5}, 1, 0.5, 0.25});
    run_chain((course){"1+2+2", 3, {1, 3, 5}, 2, 0, 0.25});
}

TEST(test_a_step_that_is_no_number_is_left_out)
{
    sick = 3;
    run_chain((course){"5", 1, {5}, 1, 0.5, 0});
    run_chain((course){"1+2+2", 3, {1, 3, 5}, 1, 0.5, 0.25});
    run_chain((course){"2+3", 2, {2, 5}, 2, 0.5, 0});
    sick = UINT64_MAX;
}

/* ---- going on ---- */

enum { SAVED = 6, SKIPPED_APART = 3 };

typedef struct resumption {
    int lost;                                   /* the stage whose own file is; -1: none is */
    float steps[2][2], after[2][2][PARAMETERS]; /* by rank, without and with a break */
} resumption;

static void note_end(const worker *w, float *steps, float *after)
{
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    *steps = *buffers[optimiser_buffers(w->optimiser, buffers) - 1].values;
    memcpy(after, w->learner->parameters, sizeof(float[PARAMETERS]));
}

static tw_status go_on_to(worker *w, uint64_t last)
{
    w->rest = last;
    return crew_take_steps(w, last);
}

static tw_status own_file(void *context, int rank, const tw_state **state)
{
    (void)rank;
    *state = context;
    return TW_OK;
}

static tw_status load_own(worker *w, int lost, tw_state *own)
{
    if (lost < 0) return w->exchange->load(w, "own.", own);
    return w->exchange->regroup(w, w->size, "own.", own_file, w->rank == lost ? NULL : own, NULL);
}

/* Goes on, and then once more from what was there after step SAVED: the model, of rank 0, and each worker's own. */
static tw_status go_on_twice(crew_member *self, tw_state *model, tw_state *own)
{
    worker *w = &self->worker;
    resumption *all = self->context;
    train_settings again = *self->settings;
    float saved[PARAMETERS];
    again.resume = (char[]){""};
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(w));
    TW_TRY(go_on_to(w, SAVED));
    TW_TRY(worker_settle(w));
    TW_TRY(optimiser_save(w->optimiser, model));
    TW_TRY(w->exchange->save(w, "own.", own));
    memcpy(saved, w->learner->parameters, sizeof saved);
    TW_TRY(go_on_to(w, STEPS));
    note_end(w, &all->steps[self->rank][0], all->after[self->rank][0]);
    worker_release(w);
    TW_TRY(worker_create(&again, self->work, self->comm, w));
    w->step = SAVED;
    TW_TRY(load_own(w, all->lost, own));
    if (self->rank == 0) TW_TRY(optimiser_load(w->optimiser, model));
    if (self->rank == 0) memcpy(w->learner->parameters, saved, sizeof saved);
    TW_TRY(worker_begin(w));
    TW_TRY(go_on_to(w, STEPS));
    note_end(w, &all->steps[self->rank][1], all->after[self->rank][1]);
    return TW_OK;
}

static tw_status play_twice(crew_member *self)
{
    tw_state *model, *own;
    TW_TRY(tw_state_create(&model));
    TW_TRY(tw_state_create(&own));
    const tw_status status = go_on_twice(self, model, own);
    tw_state_destroy(model);
    tw_state_destroy(own);
    return status;
}

static void play_resumption(int lost, resumption *all)
{
    static toy_run r;
    crew_member crew[CREW_MOST];
    r = (toy_run){0};
    all->lost = lost;
    apart = SKIPPED_APART;
    toy_begin(&r, &chain_task, NULL, "--optimizer adam --lr 0.01 --pipeline stages=2,cut=2+3 --steps 14");
    crew_run(crew, 2, (crew_member){.play = play_twice, .settings = &r.settings, .work = &r.toy.base, .context = all});
    toy_end(&r);
    apart = UINT64_MAX;
    crew_must_succeed(crew, 2);
    assert_int_equal((int)all->steps[0][0], STEPS);
    assert_int_equal((int)all->steps[1][0], STEPS - 1);
}

/* Also where the other stage's file is lost, which is no reason to drop what this one has. */
TEST(test_stages_that_skip_other_steps_go_on_with_their_own_count)
{
    static resumption all;
    for (int lost = -1; lost < 1; lost++) {
        play_resumption(lost, &all);
        assert_int_equal((int)all.steps[0][1], STEPS);
        assert_int_equal((int)all.steps[1][1], STEPS - 1);
        for (size_t u = 0; u < UNITS; u++) {
            const float(*after)[PARAMETERS] = all.after[u >= 2];
            assert_true(after[0][place_of(u)] == after[1][place_of(u)]);
        }
    }
    play_resumption(1, &all);
    assert_int_equal((int)all.steps[1][1], STEPS); /* the first one's */
}

/* ---- an end ---- */

/* The last stage alone is asked to stop. */
static tw_status play_until_asked(crew_member *self)
{
    worker *w = &self->worker;
    seen *all = self->context;
    double loss;
    size_t taken = 0;
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(w));
    w->rest = STEPS;
    w->stops = self->rank == w->size - 1;
    do TW_TRY(worker_step(w, &loss));
    while (++taken < STEPS && !w->exchange->meets(w));
    all->met[0][self->rank] = (int)taken;
    return TW_OK;
}

TEST(test_what_one_stage_is_asked_all_do)
{
    static seen all;
    play_course(&(course){"1+2+2", 3, {1, 3, 5}, 1, 0, 0}, play_until_asked, &all);
    assert_in_range(all.met[0][0], 2, 4); /* what was on its way, and one more */
    assert_int_equal(all.met[0][1], all.met[0][0]);
    assert_int_equal(all.met[0][2], all.met[0][0]);
}

static tw_status play_looks(crew_member *self)
{
    worker *w = &self->worker;
    seen *all = self->context;
    evaluation result;
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(w));
    for (int look = 0; look < 2; look++) { /* the lines are clear again after the first */
        TW_TRY(worker_evaluate(w, TASK_TEST, &result));
        all->met[look][self->rank] = (int)result.score.count;
        all->met[look + 2][self->rank] = result.is_cut;
    }
    return TW_OK;
}

/* By all of its stages with the same batch: the next, or as many later as the word takes to the first stage. */
TEST(test_what_one_stage_is_asked_ends_an_evaluation)
{
    static seen all;
    static const int last[] = {ASKED + 1, ASKED + 2, ASKED + 4};
    for (asker = -1; asker < 3; asker++) {
        play_course(&(course){"1+2+2", 3, {1, 3, 5}, 1, 0, 0}, play_looks, &all);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(all.met[0][rank], 3 * (asker < 0 ? LOOKS : last[asker]));
            assert_int_equal(all.met[2][rank], asker >= 0);
        }
        assert_int_equal(all.met[1][0], asker < 0 ? 3 * LOOKS : 0);
    }
    asker = -1;
}

/* ---- a slow stage ---- */

/* What --slow adds, of which a world's clock would know nothing. */
static double slept;

int nanosleep(const struct timespec *asked, struct timespec *left)
{
    (void)left;
    slept += (double)asked->tv_sec + 1e-9 * (double)asked->tv_nsec;
    return 0;
}

typedef struct slow_run {
    const train_settings *settings;
    const task *work;
    tw_status status[2];
    totals sums[2];
} slow_run;

static void play_slow(void *context, int rank, tw_comm *comm)
{
    slow_run *all = context;
    crew_member self = {.settings = all->settings, .work = all->work, .comm = comm};
    all->status[rank] = crew_take_all_steps(&self);
    if (all->status[rank] == TW_OK) all->status[rank] = worker_totals(&self.worker, &all->sums[rank]);
    worker_release(&self.worker);
}

/* The first stage is called twice for each micro-batch, the last one once, and waits meanwhile. */
TEST(test_a_slow_stage_waits_no_longer_than_others)
{
    static toy_run r;
    static slow_run all;
    tw_world *world;
    toy_begin(&r, &chain_task, NULL, "--pipeline stages=2,cut=2+3 --steps 14 --slow 1:3");
    all = (slow_run){.settings = &r.settings, .work = &r.toy.base};
    call_seconds[0] = 1, call_seconds[1] = 0.25;
    assert_ok(tw_world_create(&(tw_world_options){.struct_size = sizeof(tw_world_options), .workers = 2}, &world));
    assert_ok(tw_world_run(world, play_slow, &all));
    tw_world_destroy(world);
    call_seconds[0] = 0;
    toy_end(&r);
    assert_ok(all.status[0]);
    assert_ok(all.status[1]);
    assert_near(slept, STEPS * 2 * 0.25, 1e-6);
    assert_near(all.sums[0].values[TOTAL_SECONDS_PASS], STEPS * 2 * 1.0, 1e-6);
    assert_near(all.sums[1].values[TOTAL_SECONDS_PASS], STEPS * 0.25, 1e-6);
    assert_true(all.sums[1].values[TOTAL_SECONDS_WAIT] > STEPS * 1.0);
}

/* ---- what is told ---- */

TEST(test_the_first_stage_counts_what_all_have_done)
{
    char *text;
    size_t size;
    const task images = {.items = "images"};
    const worker w = {.size = 4, .exchange = &pipeline_exchange, .task = &images, .step = 10, .steps = 20};
    totals sums = {.values[TOTAL_ITEMS] = 5e6};
    progress p = {.stream = open_memstream(&text, &size), .started = tw_clock() - 1e6};
    progress_step(&p, &w, 0.5, &sums);
    assert_int_equal(fclose(p.stream), 0);
    assert_non_null(strstr(text, "  5 images/s  "));
    free(text);
}

/* ---- another's word for the cut ---- */

static tw_status hear_the_cut(crew_member *self)
{
    TW_TRY(liar_take_place(self, self->context));
    TW_TRY(crew_create_worker(self));
    return worker_begin(&self->worker);
}

TEST(test_a_cut_that_cannot_be_is_refused)
{
    for (int fill = 0; fill < 256; fill += 0x55) {
        static toy_run r;
        crew_member crew[CREW_MOST];
        lie told = {.at = 1, .fill = fill, .size = sizeof((pipeline_plan *)0)->ends, .timeout = 60};
        r = (toy_run){0};
        toy_begin(&r, &chain_task, NULL, "--pipeline stages=2");
        crew_run(crew, 2,
                 (crew_member){.play = hear_the_cut, .settings = &r.settings, .work = &r.toy.base, .context = &told});
        toy_end(&r);
        assert_int_equal(crew[1].status, TW_ERROR_PACKET);
        assert_non_null(strstr(crew[1].text, "a cut that is none of 5 layers into 2 stages"));
    }
}

/* ---- the cut ---- */

static double draw(uint64_t stream, uint64_t place)
{
    uint32_t words[4];
    tw_random(11, stream, place, words);
    return 1 + words[0] % 9;
}

/* Every way to cut `units` from `first` on into the stages from `stage` on; the least of the slowest. */
static double try_all(const pipeline_problem *p, size_t stage, size_t first)
{
    const double copies = (double)pipeline_copies(stage, p->stages, p->states);
    double seconds = 0, bytes = 0, least = INFINITY;
    if (stage == p->stages) return first == p->units ? 0 : INFINITY;
    for (size_t end = first; end < p->units; end++) {
        seconds += p->machines[stage].seconds[end];
        bytes += copies * 4 * (double)p->elements[end];
        if (bytes > p->machines[stage].room) break;
        least = fmin(least, fmax(seconds, try_all(p, stage + 1, end + 1)));
    }
    return least;
}

static double slowest(const pipeline_problem *p, const size_t *ends)
{
    double worst = 0;
    for (size_t s = 0; s < p->stages; s++) {
        double seconds = 0;
        for (size_t u = s ? ends[s - 1] : 0; u < ends[s]; u++) seconds += p->machines[s].seconds[u];
        worst = fmax(worst, seconds);
    }
    return worst;
}

TEST(test_the_cut_is_the_best_of_all)
{
    static pipeline_machine machines[4];
    size_t elements[9], ends[4], impossible = 0;
    for (uint64_t trial = 0; trial < 300; trial++) {
        pipeline_problem p = {4 + trial % 6, 1 + trial % 4, machines, elements, 1 + trial % 2};
        for (size_t u = 0; u < p.units; u++) elements[u] = (size_t)draw(trial, u);
        for (size_t s = 0; s < p.stages; s++) {
            machines[s].room = 60 * draw(trial, 100 + s);
            for (size_t u = 0; u < p.units; u++) machines[s].seconds[u] = draw(trial, 200 + 10 * s + u);
        }
        const double least = try_all(&p, 0, 0), found = pipeline_cut(&p, ends);
        impossible += isinf(least);
        if (isinf(least)) assert_true(isinf(found));
        if (isinf(least)) continue;
        assert_true(found == least);
        assert_true(slowest(&p, ends) == least);
        assert_int_equal(ends[p.stages - 1], p.units);
    }
    assert_in_range(impossible, 10, 290);
}

/* ---- halves ---- */

TEST(test_halves_are_nearest)
{
    assert_int_equal(stage_half(70000.0f), 0x7bff);
    assert_int_equal(stage_half(-1e9f), 0xfbff);
    assert_int_equal(stage_half(INFINITY), 0x7c00);
    assert_true(isnan(stage_single(stage_half(NAN))));
    assert_true(isinf(stage_single(0x7c00)));
    assert_true(stage_single(0x3c00) == 1.0f && stage_single(0xc000) == -2.0f && stage_single(1) == 0x1p-24f);
    for (uint32_t h = 0; h < 0x7bff; h++) { /* between neighbours the nearer one, and of two the even one */
        const double low = (double)stage_single((uint16_t)h), high = (double)stage_single((uint16_t)(h + 1));
        const float middle = (float)((low + high) / 2);
        assert_true(low < high);
        assert_int_equal(stage_half((float)low), h);
        assert_int_equal(stage_half(-(float)low), h | 0x8000);
        assert_int_equal(stage_half(middle), h + (h & 1));
        assert_int_equal(stage_half(nextafterf(middle, 0)), h);
        assert_int_equal(stage_half(nextafterf(middle, 1e9f)), h + 1);
    }
}

/* ---- what travels ---- */

enum { SENT = 2500 };

typedef tw_status (*start_send)(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                                void **request);

typedef struct parcel {
    stage_values values;
    tw_status status[2];
    float came[SENT];
    double counted[2];
    start_send send; /* NULL: as it is */
} parcel;

static start_send send_truly;

static float value_at(size_t i)
{
    return (float)((int)(i * 37 % 101) - 50) / 7;
}

static tw_status pass_on(parcel *p, int rank, tw_comm *comm)
{
    stage_wire wire;
    float x[SENT];
    TW_TRY(stage_wire_open(comm, &wire));
    stage_line line = {.wire = &wire, .peer = 1 - rank, .channel = 1};
    send_truly = wire.ops.start_send;
    if (p->send) wire.ops.start_send = p->send;
    for (size_t i = 0; i < SENT; i++) x[i] = value_at(i);
    tw_status status = rank ? stage_line_receive(&line, p->values, p->came, SENT, NULL)
                            : stage_line_send(&line, p->values, x, SENT, NULL);
    if (status == TW_OK) status = stage_line_flush(&line);
    stage_line_close(&line);
    p->counted[rank] = rank ? wire.received : wire.sent;
    return status;
}

static void play_parcel(void *context, int rank, tw_comm *comm)
{
    ((parcel *)context)->status[rank] = pass_on(context, rank, comm);
}

static tw_world *send_parcel(parcel *p)
{
    tw_world *world;
    assert_ok(tw_world_create(&(tw_world_options){.struct_size = sizeof(tw_world_options), .workers = 2}, &world));
    assert_ok(tw_world_run(world, play_parcel, p));
    assert_ok(p->status[0]);
    return world;
}

/* Counted by the stages and in the transport: a value of fp8 has one byte, and 1,024 share another. */
TEST(test_values_have_their_bytes)
{
    const size_t bytes[] = {4 * SENT, 2 * SENT, SENT + 3};
    const float off[] = {0, 0x1p-11f, 0x1p-4f}; /* of itself, by its last bit */
    for (stage_values values = STAGE_FP32; values < STAGE_VALUES; values++) {
        static parcel p;
        p = (parcel){.values = values};
        tw_world *world = send_parcel(&p);
        assert_ok(p.status[1]);
        assert_int_equal(tw_world_bytes(world, 0), bytes[values] + sizeof(stage_note));
        assert_int_equal((uint64_t)p.counted[0], bytes[values] + sizeof(stage_note));
        assert_int_equal((uint64_t)p.counted[1], bytes[values] + sizeof(stage_note));
        for (size_t i = 0; i < SENT; i++)
            assert_true(fabsf(p.came[i] - value_at(i)) <= off[values] * fabsf(value_at(i)));
        tw_world_destroy(world);
    }
}

/* ---- what is damaged on its way ---- */

static tw_status send_altered(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                              void **request)
{
    ((unsigned char *)(uintptr_t)src)[size / 2] ^= 1;
    return send_truly(self, peer, channel, src, size, check, request);
}

static tw_status send_cut(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                          void **request)
{
    (void)check;
    return send_truly(self, peer, channel, src, size - 1, tw_crc32c(0, src, size - 1), request);
}

TEST(test_what_is_damaged_is_refused)
{
    const start_send ways[] = {send_altered, send_cut};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        static parcel p;
        p = (parcel){.values = STAGE_FP16, .send = ways[i]};
        tw_world *world = send_parcel(&p);
        assert_int_equal(p.status[1], TW_ERROR_PACKET);
        tw_world_destroy(world);
    }
}

/* ---- how long is waited ---- */

/* A neighbour that sends nothing, and is heard of as often as a test says. */
typedef struct neighbour {
    int polls, heard_until; /* looks for its message */
    uint64_t signs;
} neighbour;

static tw_status await_nothing(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **request)
{
    *request = self;
    return TW_OK;
}

static int look_for_it(void *self, void *request, double timeout)
{
    ((neighbour *)self)->polls++;
    return 0;
}

static uint64_t hear_of_it(void *self, int peer, int ask)
{
    neighbour *n = self;
    return n->polls <= n->heard_until ? ++n->signs : n->signs;
}

static tw_status give_up(void *self, void *request, double timeout, size_t *size, uint32_t *check)
{
    return TW_ERROR_PEER;
}

/* In eighths of the timeout; patience < 0 is the default. */
static int looks_of_a_wait(int hears, int heard_until, double patience)
{
    tw_comm *comm;
    float x;
    neighbour n = {.heard_until = heard_until};
    assert_ok(tw_comm_create_threads(1, &comm));
    assert_ok(tw_comm_set_timeout(comm, 8));
    if (patience > 0) assert_ok(tw_comm_set_patience(comm, patience));
    stage_wire wire = {
        .comm = comm,
        .self = &n,
        .ops = {.start_recv = await_nothing, .poll = look_for_it, .wait = give_up, .signs = hears ? hear_of_it : NULL}};
    stage_line line = {.wire = &wire, .peer = 1, .channel = 1};
    assert_int_equal(stage_line_receive(&line, STAGE_FP32, &x, 1, NULL), TW_ERROR_PEER);
    assert_non_null(strstr(tw_last_error(), "stage 1 of the pipeline did not answer stage 0"));
    stage_line_close(&line);
    tw_comm_destroy(comm);
    return n.polls;
}

TEST(test_a_neighbour_is_waited_for_while_it_is_heard_of)
{
    assert_int_equal(looks_of_a_wait(1, 0, -1), 8);
    assert_int_equal(looks_of_a_wait(1, 5, -1), 5 + 8);
    assert_int_equal(looks_of_a_wait(1, INT_MAX, 40), 40);
    assert_int_equal(looks_of_a_wait(1, INT_MAX, -1), 1800);
    assert_int_equal(looks_of_a_wait(0, 0, -1), 8);
    assert_int_equal(looks_of_a_wait(0, 0, 40), 40);
}

RUN_TESTS(NULL, NULL)
