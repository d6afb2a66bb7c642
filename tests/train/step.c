/* What a step does with the gradients of all workers: every option of the optimiser, with every way for workers to
 * agree, against one page of arithmetic. */
#include "exchange_gradients.h"
#include "toy.h"

#include <math.h>

enum { STEPS = 8 };

#define TOLERANCE 2e-5

/* How workers agree. What is not compressed and what is all sent lets every one of them take the same course. */
typedef struct way {
    const char *sync;
    int clips_mean;  /* clips the mean of all gradients; the others each worker's own */
    int momentum;    /* the scheme's: its options say which */
    uint64_t warmup; /* steps in which gradients of all workers are taken to agree */
    int course;      /* weights are read at any time, so no step may depend on them */
    double rounds;   /* how much in a run; 0: nothing that can be seen */
} way;

static const way ways[] = {
    {.sync = "allreduce", .clips_mean = 1},
    {.sync = "fp16", .clips_mean = 1, .rounds = 2e-3},
    {.sync = "topk:density=1,values=fp32,leftovers=fp32,min_elements=1"},
    {.sync = "dgc:density=1,values=fp32,leftovers=fp32,min_elements=1,masking=off,warmup_steps=0", .momentum = 1},
    {.sync = "dgc:density=1,values=fp32,leftovers=fp32,min_elements=1,warmup_steps=3", .momentum = 1, .warmup = 3},
    {.sync = "dpsgd"},
    {.sync = "adpsgd-d1"},
    {.sync = "adpsgd-random", .course = 1},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* Options, and what they mean. */
typedef struct rule {
    const char *words;
    double clip, decay, momentum;
    int nesterov;
    double rates[STEPS];
} rule;

#define CONSTANT                                                                                                       \
    {                                                                                                                  \
        1, 1, 1, 1, 1, 1, 1, 1                                                                                         \
    }
#define WARMED                                                                                                         \
    {                                                                                                                  \
        1. / 3, 2. / 3, 1, 1, 1, 1, 1, 1                                                                               \
    }
#define STAIRS                                                                                                         \
    {                                                                                                                  \
        2, 2, .2, .2, .02, .02, .02, .02                                                                               \
    }

static const rule rules[] = {
    {.words = "", .rates = CONSTANT},
    {.words = "--clip 0.75", .clip = 0.75, .rates = CONSTANT},
    {.words = "--clip 100", .clip = 100, .rates = CONSTANT},
    {.words = "--weight-decay 0.125", .decay = 0.125, .rates = CONSTANT},
    {.words = "--warmup 3", .rates = WARMED},
    {.words = "--lr 2 --schedule step:0.25,1", .rates = STAIRS},
    {.words = "", .momentum = 0.5, .rates = CONSTANT},
    {.words = "", .momentum = 0.5, .nesterov = 1, .rates = CONSTANT},
    {.words = "--clip 0.75 --weight-decay 0.125 --warmup 3",
     .clip = 0.75,
     .decay = 0.125,
     .momentum = 0.5,
     .nesterov = 1,
     .rates = WARMED},
};
enum { RULES = sizeof rules / sizeof *rules };

/* ---- the page of arithmetic -------------------------------------------------------------------------------------- */

static void clip_to(double limit, double *values)
{
    double squares = 0;
    for (size_t i = 0; i < TOY_PARAMETERS; i++) squares += values[i] * values[i];
    for (size_t i = 0; i < TOY_PARAMETERS && limit > 0 && squares > limit * limit; i++)
        values[i] *= limit / sqrt(squares);
}

static void mean_gradient(const rule *r, const way *by, int workers, uint64_t step, double *mean)
{
    memset(mean, 0, TOY_PARAMETERS * sizeof *mean);
    for (int rank = 0; rank < workers; rank++) {
        double own[TOY_PARAMETERS];
        toy_learner l = {.base.place.rank = rank};
        for (size_t i = 0; i < TOY_PARAMETERS; i++) own[i] = (double)toy_draw(&l, step, i);
        if (!by->clips_mean) clip_to(step < by->warmup ? r->clip : r->clip * sqrt(workers), own);
        for (size_t i = 0; i < TOY_PARAMETERS; i++) mean[i] += own[i] / workers;
    }
    if (by->clips_mean) clip_to(r->clip, mean);
}

static void walk(const rule *r, const way *by, int workers, double *weights)
{
    double buffer[TOY_PARAMETERS] = {0}, mean[TOY_PARAMETERS];
    for (size_t i = 0; i < TOY_PARAMETERS; i++) weights[i] = (double)toy_start(i);
    for (uint64_t step = 0; step < STEPS; step++) {
        mean_gradient(r, by, workers, step, mean);
        for (size_t i = 0; i < TOY_PARAMETERS; i++) {
            double force = mean[i] + (i < TOY_MATRIX ? r->decay * weights[i] : 0);
            buffer[i] = r->momentum * buffer[i] + force;
            weights[i] -= r->rates[step] * (r->nesterov ? force + r->momentum * buffer[i] : buffer[i]);
        }
    }
}

/* ---- the trainer ------------------------------------------------------------------------------------------------- */

static void run(toy_run *r, int workers, const char *words)
{
    toy_play(r, workers, crew_take_all_steps, NULL, NULL, words);
    crew_must_succeed(r->crew, workers);
}

static void compare(const char *words, int workers, const toy_run *run, const double *expected, double tolerance)
{
    for (int rank = 0; rank < workers; rank++)
        for (size_t i = 0; i < TOY_PARAMETERS; i++)
            if (!(fabs((double)run->toy.log[rank].final[i] - expected[i]) < tolerance))
                fail_msg("%s: rank %d of %d has weight %zu at %.8g, not %.8g", words, rank, workers, i,
                         (double)run->toy.log[rank].final[i], expected[i]);
}

static void write_words(const rule *r, const way *by, char words[400])
{
    char momentum[64] = "";
    if (r->momentum > 0)
        snprintf(momentum, sizeof momentum, by->momentum ? ",momentum=%g,nesterov=%s" : " --momentum %g%s", r->momentum,
                 by->momentum ? (r->nesterov ? "on" : "off") : (r->nesterov ? " --nesterov" : ""));
    snprintf(words, 400, "--sync %s%s %s", by->sync, momentum, r->words);
}

TEST(every_option_means_the_same_with_every_scheme)
{
    for (size_t b = 0; b < WAYS; b++) {
        for (size_t k = 0; k < RULES; k++) {
            if (ways[b].course && rules[k].decay > 0) continue;
            for (int workers = 1; workers <= TOY_RANKS; workers++) {
                toy_run r = {0};
                char words[400];
                double expected[TOY_PARAMETERS];
                write_words(&rules[k], &ways[b], words);
                walk(&rules[k], &ways[b], workers, expected);
                run(&r, workers, words);
                compare(words, workers, &r, expected, TOLERANCE + ways[b].rounds);
            }
        }
    }
}

/* The arithmetic itself can tell the two ways to clip apart, and clips both. */
TEST(clipping_the_mean_is_not_clipping_each)
{
    double mean[TOY_PARAMETERS], each[TOY_PARAMETERS], free_of_it[TOY_PARAMETERS];
    walk(&rules[1], &ways[0], 2, mean);
    walk(&rules[1], &ways[2], 2, each);
    walk(&rules[0], &ways[0], 2, free_of_it);
    assert_true(fabs(mean[0] - each[0]) > 1e-3 && fabs(mean[0] - free_of_it[0]) > 1e-3 &&
                fabs(each[0] - free_of_it[0]) > 1e-3);
}

/* ---- Adam -------------------------------------------------------------------------------------------------------- */

static void walk_by_moments(int workers, double rate, double beta1, double beta2, double coupled, double beside,
                            double *weights)
{
    double first[TOY_PARAMETERS] = {0}, second[TOY_PARAMETERS] = {0}, mean[TOY_PARAMETERS];
    for (size_t i = 0; i < TOY_PARAMETERS; i++) weights[i] = (double)toy_start(i);
    for (uint64_t step = 0; step < STEPS; step++) {
        mean_gradient(&rules[0], &ways[0], workers, step, mean);
        for (size_t i = 0; i < TOY_PARAMETERS; i++) {
            double is_matrix = i < TOY_MATRIX, force = mean[i] + is_matrix * coupled * weights[i];
            first[i] = beta1 * first[i] + (1 - beta1) * force;
            second[i] = beta2 * second[i] + (1 - beta2) * force * force;
            double m = first[i] / (1 - pow(beta1, (double)step + 1)),
                   v = second[i] / (1 - pow(beta2, (double)step + 1));
            weights[i] -= rate * (m / (sqrt(v) + 1e-8) + is_matrix * beside * weights[i]);
        }
    }
}

static void check_moments(int workers, int decoupled, const char *more)
{
    static const char common[] = "--momentum 0.5 --beta2 0.75 --lr 0.25 --weight-decay 0.125";
    toy_run r = {0};
    char words[400];
    double expected[TOY_PARAMETERS];
    snprintf(words, sizeof words, "%s %s", common, more);
    walk_by_moments(workers, 0.25, 0.5, 0.75, decoupled ? 0 : 0.125, decoupled ? 0.125 : 0, expected);
    run(&r, workers, words);
    compare(words, workers, &r, expected, TOLERANCE);
}

TEST(adam_has_its_own_arithmetic)
{
    for (int decoupled = 0; decoupled < 2; decoupled++)
        check_moments(2, decoupled, decoupled ? "--optimizer adamw" : "--optimizer adam");
}

/* The scheme has the moments, and takes their decays from the run. What it does not compress has those of the mean. */
TEST(a_scheme_takes_steps_of_adam)
{
    check_moments(1, 1,
                  "--optimizer adamw --sync dgc-adam:density=1,values=fp32,warmup_steps=0,nesterov=off,momentum=0.5");
    check_moments(2, 1, "--optimizer adamw --sync dgc-adam:dense=*,leftovers=fp32,nesterov=off,momentum=0.5");
    check_moments(1, 1, "--optimizer adamw --sync dgc:beta2=0.75,dense=*,leftovers=fp32,momentum=0.5");
}

/* ---- signs ------------------------------------------------------------------------------------------------------- */

/* Of a scheme that sends all of its momentum and keeps none: the mean's, beside which weights decay by themselves. */
TEST(signs_leave_a_decay_beside_them)
{
    static const char *const optimisers[] = {"sgd", "adamw"};
    for (int workers = 1; workers <= TOY_RANKS; workers++)
        for (int k = 0; k < 2; k++) {
            toy_run r = {0};
            char words[200];
            double weights[TOY_PARAMETERS], mean[TOY_PARAMETERS];
            for (size_t i = 0; i < TOY_PARAMETERS; i++) weights[i] = (double)toy_start(i);
            for (uint64_t step = 0; step < STEPS; step++) {
                mean_gradient(&rules[0], &ways[0], workers, step, mean);
                for (size_t i = 0; i < TOY_PARAMETERS; i++)
                    weights[i] -= 0.25 * ((mean[i] > 0) - (mean[i] < 0) + (i < TOY_MATRIX ? 0.125 * weights[i] : 0));
            }
            snprintf(words, sizeof words,
                     "--sync demo:chunk=1,k=1,values=fp32 --lr 0.25 --weight-decay 0.125 --optimizer %s",
                     optimisers[k]);
            run(&r, workers, words);
            compare(words, workers, &r, weights, TOLERANCE);
        }
}

/* ---- the rate, as the scheme hears it ---------------------------------------------------------------------------- */

static tw_status note_rates(crew_member *self)
{
    double loss;
    worker *w = &self->worker;
    float *rates = self->context;
    TW_TRY(crew_create_worker(self));
    while (w->step < w->steps) {
        tw_state *remembered;
        TW_TRY(worker_step(w, &loss));
        TW_TRY(tw_state_create(&remembered));
        tw_status status = tw_reducer_save_state(reducer_of(w), "", remembered);
        if (status == TW_OK && w->rank == 0)
            status = tw_state_get(remembered, "rate/matrix", TW_F32, 1, &rates[w->step - 1]);
        tw_state_destroy(remembered);
        TW_TRY(status);
    }
    return TW_OK;
}

/* sdagc follows the rate, and remembers which one its last gradient came with. */
TEST(a_scheme_is_told_the_rate_of_each_step)
{
    static const float expected[STEPS] = {0.5f, 1, 1.5f, 2, 0.2f, 0.2f, 0.2f, 0.2f};
    toy_run r = {0};
    float rates[STEPS];
    toy_play(&r, 2, note_rates, rates, NULL,
             "--sync sdagc:min_elements=1,momentum=0.5 --lr 2 --warmup 4 --schedule step:1");
    crew_must_succeed(r.crew, 2);
    for (int step = 0; step < STEPS; step++) assert_near(rates[step], expected[step], 1e-6);
}

RUN_TESTS(NULL, NULL)
