#include "plan.h"
#include "error.h"
#include "exchange.h"
#include "optimiser.h"
#include "scheme.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_RATE 10e9 /* bytes a second at which what came from others is added: the simulator's own figure */
#define NEARLY 1.05      /* so much slower is as fast, and the simpler one is better */
enum { REDUCER_STEPS = 2, GOSSIP_STEPS = 16, ROUNDS = 2 };

/* ---- who is left out --------------------------------------------------------------------------------------------- */

/* The momentum that a scheme applies itself. */
static tw_status momentum_of(const char *spec, float *momentum)
{
    const tw_tensor one = {"one", 2, {64, 64}};
    tw_comm *comm;
    tw_reducer *reducer = NULL;
    TW_TRY(tw_comm_create_threads(1, &comm));
    tw_status status = tw_reducer_create(comm, spec, &one, 1, &reducer);
    if (status == TW_OK) *momentum = tw_reducer_momentum(reducer, NULL);
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
    return status;
}

static tw_status suits_optimizer(const plan_question *q, const char *spec)
{
    float momentum = 0;
    if (scheme_find(spec) == tw_schemes_count()) return TW_OK; /* weights, and what steps came to, have none */
    TW_TRY(momentum_of(spec, &momentum));
    const optimiser_settings with = {
        .kind = (optimiser_kind)q->optimizer, .directed = momentum > 0, .adapted = scheme_adapts(spec)};
    return optimiser_check(&with, spec);
}

static tw_status suits_length(const plan_question *q, const char *spec)
{
    double every = scheme_number(spec, "every");
    if (!(every > (double)q->steps)) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "a round takes %g steps, and the run has %llu", every,
                   (unsigned long long)q->steps);
}

/* ---- what is predicted of one ------------------------------------------------------------------------------------ */

/* As the run will have it once it is warm. *warmup: the share of the run until then. */
static char *warm_spec(const plan_question *q, const char *spec, double *warmup)
{
    char *of_run = scheme_for_run(spec, q->steps);
    double steps = of_run ? scheme_number(of_run, "warmup_steps") : 0;
    *warmup = steps > 0 ? fmin(1, steps / (double)q->steps) : 0;
    if (!(steps > 0)) return of_run;
    char *warm = scheme_with(of_run, "warmup_steps", "0");
    free(of_run);
    return warm;
}

static long steps_to_simulate(const sim_setup *setup)
{
    const char *sync = setup->settings.sync;
    if (setup->updates) return ROUNDS * (long)scheme_number(sync, "every");
    return setup->gossips ? GOSSIP_STEPS : REDUCER_STEPS;
}

/* What gossip costs was measured where workers average their weights about once a step. Over a slow line they do so
 * less often. */
static int averages_each_step(const plan_question *q, const sim_result *result)
{
    return result->bytes_per_worker_step >= 0.8 * sizeof(float) * (double)q->layout->elements;
}

/* What is exchanged last arrives so many steps later: they are taken, too, and only their waiting counts. */
static long steps_that_wait(const char *spec)
{
    double delay = scheme_number(spec, "delay");
    return delay > 0 ? (long)delay : 0;
}

static tw_status simulate_row(const plan_question *q, const char *spec, const float *noise, plan_row *row)
{
    sim_result result;
    plan_trial trial = {0, (double)NAN};
    sim_setup setup = {.kind = &sim_phantom, .layout = q->layout, .noise = noise, .pace = q->pace, .world = q->world};
    setup.settings.workers = q->workers;
    setup.settings.seed = (long)q->seed;
    sim_take_scheme(&setup, spec);
    long counted = steps_to_simulate(&setup), late = steps_that_wait(spec);
    setup.settings.steps = counted + late;
    sim_take_codec_rate(&setup, q->codec_rate > 0 ? q->codec_rate : MEMORY_RATE);
    if (!setup.gossips) TW_TRY(plan_try(q->layout, spec, &trial));
    if (!setup.gossips && q->codec_rate == 0) setup.world.element_seconds = trial.seconds / (double)q->layout->elements;
    TW_TRY(sim_run(&setup, &result));
    row->codec_seconds = setup.updates ? trial.seconds / scheme_number(spec, "every") : trial.seconds;
    row->memory_bytes = trial.memory_bytes;
    if (setup.gossips && !averages_each_step(q, &result)) row->cost = NULL;
    double steps = (double)setup.settings.steps, pass = q->pace.step_seconds + q->pace.other_seconds;
    row->bytes_per_step = result.bytes_per_worker_step * steps / (double)counted;
    row->step_seconds = (result.step_seconds * steps - (double)late * pass) / (double)counted;
    return TW_OK;
}

/* Until a scheme is warm it sends up to what a dense exchange does. */
static void add_warmup(plan_row *row, const plan_row *dense, double warmup)
{
    row->step_seconds += warmup * (fmax(dense->step_seconds, row->step_seconds) - row->step_seconds);
    row->bytes_per_step += warmup * (fmax(dense->bytes_per_step, row->bytes_per_step) - row->bytes_per_step);
}

static tw_status predict(const plan_question *q, const float *noise, const plan_row *dense, plan_row *row)
{
    double warmup;
    TW_TRY(suits_optimizer(q, row->spec));
    TW_TRY(suits_length(q, row->spec));
    char *warm = warm_spec(q, row->spec, &warmup);
    if (!warm) return tw_fail(TW_ERROR_MEMORY, "no memory for a spec");
    tw_status status = simulate_row(q, warm, noise, row);
    free(warm);
    TW_TRY(status);
    add_warmup(row, dense, warmup);
    row->utilisation = (q->pace.step_seconds + q->pace.other_seconds) / row->step_seconds;
    row->target_seconds = row->step_seconds * (1 + (row->cost ? row->cost->extra : 0));
    return TW_OK;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

static int may_be_chosen(const plan_row *row, int unmeasured)
{
    return !*row->left_out && (row->cost || unmeasured);
}

static const plan_row *fastest_of(const plan *answer, int unmeasured)
{
    const plan_row *best = answer->dense;
    for (size_t i = 0; i < answer->count; i++)
        if (may_be_chosen(&answer->rows[i], unmeasured) && answer->rows[i].target_seconds < best->target_seconds)
            best = &answer->rows[i];
    return best;
}

static void __attribute__((format(printf, 2, 3))) add_why(plan *answer, const char *form, ...)
{
    size_t used = strlen(answer->why);
    va_list values;
    va_start(values, form);
    vsnprintf(answer->why + used, sizeof answer->why - used, form, values);
    va_end(values);
}

/* `fastest` and `of_all` may be the same. */
static void explain(plan *answer, const plan_row *fastest, const plan_row *of_all)
{
    const plan_row *chosen = answer->chosen;
    int percent = (int)lround(100 * (NEARLY - 1));
    *answer->why = 0;
    if (chosen == of_all && chosen == answer->dense)
        add_why(answer, "Nothing is faster, and it is exact: compression would only take time.");
    else if (chosen == answer->dense)
        add_why(answer, "It is exact.");
    else
        add_why(answer, "It is predicted to reach the same loss %.3g times as fast as %s.",
                answer->dense->target_seconds / chosen->target_seconds, answer->dense->spec);
    if (fastest != chosen) add_why(answer, " %s is less than %d %% faster, and not as simple.", fastest->spec, percent);
    if (of_all->target_seconds * NEARLY < fastest->target_seconds)
        add_why(answer, " %s is faster, but what it costs in such a run has not been measured.", of_all->spec);
}

void plan_choose(plan *answer, int unmeasured)
{
    const plan_row *fastest = fastest_of(answer, unmeasured), *row = answer->rows;
    while (!may_be_chosen(row, unmeasured) || row->target_seconds > NEARLY * fastest->target_seconds) row++;
    answer->chosen = row;
    explain(answer, fastest, fastest_of(answer, 1));
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static void add_row(const plan_question *q, const candidate *c, const float *noise, plan *answer)
{
    plan_row *row = &answer->rows[answer->count++];
    const candidate_cost *measured = q->optimizer == OPTIMISER_SGD ? &c->sgd : &c->adam;
    *row = (plan_row){.spec = c->spec, .cost = candidate_is_known(measured, (double)q->steps) ? measured : NULL};
    if (predict(q, noise, answer->dense, row) != TW_OK)
        snprintf(row->left_out, sizeof row->left_out, "%s", tw_last_error());
    if (!q->progress) return;
    if (*row->left_out)
        fprintf(q->progress, "%s: left out\n", row->spec);
    else
        fprintf(q->progress, "%s: %.4g s a step\n", row->spec, row->step_seconds);
}

static tw_status add_rows(const plan_question *q, const float *noise, plan *answer)
{
    answer->dense = answer->rows;
    for (size_t i = 0; candidate_at(i) && answer->count < PLAN_ROWS; i++) {
        add_row(q, candidate_at(i), noise, answer);
        if (*answer->dense->left_out) return tw_fail(TW_ERROR_ARGUMENT, "%s", answer->dense->left_out);
    }
    return TW_OK;
}

tw_status plan_make(const plan_question *q, plan *answer)
{
    float *noise;
    *answer = (plan){.count = 0};
    if (q->workers < 2)
        return tw_fail(TW_ERROR_ARGUMENT, "--workers %d: a worker alone exchanges nothing; say how many there will be",
                       q->workers);
    TW_TRY(sim_noise(q->layout, q->seed, &noise));
    tw_status status = add_rows(q, noise, answer);
    free(noise);
    if (status == TW_OK) plan_choose(answer, q->unmeasured);
    return status;
}
