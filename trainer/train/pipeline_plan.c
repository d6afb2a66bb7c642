#include "pipeline_plan.h"
#include "error.h"
#include "machine_memory.h"
#include "pairs.h"
#include "words.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the option ---- */

static tw_status refuse(const char *text, const char *why)
{
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--pipeline %s: %s; it is stages=P, and may have accumulate=K, how many micro-batches a step takes, "
                   "values=fp32, fp16 or fp8, cut=A+B+..., how many layers each stage has, and standby=S, how many "
                   "workers wait to take the place of one that is lost",
                   text, why);
}

/* 0: there is no number from 1 to `most` at `text`. */
static size_t read_count(const char *text, size_t most, const char **behind)
{
    char *end;
    const size_t count = isdigit((unsigned char)*text) ? strtoul(text, &end, 10) : 0;
    if (count > 0) *behind = end;
    return count <= most ? count : 0;
}

static tw_status parse_cut(const char *text, const char *value, const char *end, pipeline_plan *plan)
{
    for (; value <= end; value++) {
        const size_t count = read_count(value, PIPELINE_UNITS, &value),
                     before = plan->cut ? plan->ends[plan->cut - 1] : 0;
        if (count == 0 || plan->cut == PIPELINE_STAGES) return refuse(text, "a stage has one layer or more");
        if (value < end && *value != '+') return refuse(text, "there is + between the stages of a cut");
        plan->ends[plan->cut++] = before + count;
    }
    return TW_OK;
}

static int is_value(const pair *p, const char *value)
{
    return p->value && p->value_length == strlen(value) && memcmp(p->value, value, p->value_length) == 0;
}

/* Whether it is a whole number from 1 on, and no more than `most`. */
static int is_count(const pair *p, size_t most, size_t *count)
{
    const char *behind = p->value;
    *count = read_count(p->value, most, &behind);
    return *count > 0 && behind == p->value + p->value_length;
}

static tw_status parse_pair(const char *text, const pair *p, pipeline_plan *plan)
{
    if (pair_is_again(text, p)) return refuse(text, "a key is there twice");
    if (pair_has_key(p, "stages") && p->value)
        return is_count(p, PIPELINE_STAGES, &plan->stages) ? TW_OK : refuse(text, "there are 1 to 64 stages");
    if (pair_has_key(p, "accumulate") && p->value)
        return is_count(p, PIPELINE_ACCUMULATE, &plan->accumulate)
                   ? TW_OK
                   : refuse(text, "a step takes 1 to 4096 micro-batches");
    if (pair_has_key(p, "standby") && p->value)
        return is_count(p, PIPELINE_STAGES, &plan->standby) ? TW_OK : refuse(text, "1 to 64 workers stand by");
    if (pair_has_key(p, "cut") && p->value) return parse_cut(text, p->value, p->value + p->value_length, plan);
    if (!pair_has_key(p, "values")) return refuse(text, p->value ? "there is no such key" : "a value needs its key");
    plan->values = STAGE_FP32;
    while (plan->values < STAGE_VALUES && !is_value(p, stage_values_names[plan->values])) plan->values++;
    return plan->values < STAGE_VALUES ? TW_OK : refuse(text, "values are fp32, fp16 or fp8");
}

tw_status pipeline_plan_parse(const char *text, pipeline_plan *plan)
{
    pair p;
    plan->accumulate = 1;
    TW_TRY(words_check_printed(TW_ERROR_ARGUMENT, "--pipeline", text));
    for (const char *left = text; pair_next(&left, &p);) TW_TRY(parse_pair(text, &p, plan));
    if (plan->stages == 0) return refuse(text, "it does not say how many stages");
    if (plan->cut > 0 && plan->cut != plan->stages) return refuse(text, "cut has another number of stages");
    return TW_OK;
}

size_t pipeline_standby(const char *text)
{
    pipeline_plan plan = {0};
    return text && pipeline_plan_parse(text, &plan) == TW_OK ? plan.standby : 0;
}

static tw_status check_company(const train_settings *s, size_t stages, size_t workers)
{
    if (workers > 0 && workers != stages)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--pipeline has %zu stages and goes with as many workers, and these are %zu; write --pipeline "
                       "stages=%zu, or --workers %zu",
                       stages, workers, workers, stages);
    if (strcmp(s->sync, "allreduce") != 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--pipeline goes with --sync allreduce, without options, and not with %s: there is one network, "
                       "and nobody to agree with",
                       s->sync);
    if (s->check_every > 0 && options_source(s->set, "check-every") == OPTION_FROM_LINE)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--check-every %ld: no two stages of --pipeline hold the same weights, so there is nothing to "
                       "compare; leave it out",
                       s->check_every);
    if (s->memory_budget || s->dump_gradients)
        return tw_fail(TW_ERROR_ARGUMENT, "--pipeline does not go with --%s: leave out one of them",
                       s->memory_budget ? "memory-budget" : "dump-gradients");
    return TW_OK;
}

tw_status pipeline_plan_check(const train_settings *s)
{
    pipeline_plan plan = {0};
    if (!s->pipeline) return TW_OK;
    TW_TRY(pipeline_plan_parse(s->pipeline, &plan));
    return check_company(s, plan.stages, plan.standby > 0 ? 0 : (size_t)s->workers);
}

/* ---- measuring ---- */

static tw_status receive_any(void *context, float *x, size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++) x[i] = 0.25f * (float)(i % 7) - 0.75f;
    return TW_OK;
}

static tw_status send_nowhere(void *context, const float *y, size_t count, float *dy, int *back)
{
    (void)context;
    for (size_t i = 0; i < count; i++) dy[i] = 1e-3f * y[i];
    *back = 1;
    return TW_OK;
}

static tw_status send_back_nowhere(void *context, const float *dx, size_t count)
{
    (void)context, (void)dx, (void)count;
    return TW_OK;
}

/* The faster of two steps: the first of all is like no other. */
static tw_status time_steps(learner *l, double *seconds)
{
    task_score score;
    *seconds = INFINITY;
    for (uint64_t step = 0; step < 3; step++) {
        const double begun = tw_clock();
        TW_TRY(l->task->ops->step(l, step % l->steps_per_epoch, NULL, NULL, &score));
        if (step > 0) *seconds = fmin(*seconds, tw_clock() - begun);
    }
    return TW_OK;
}

static tw_status learn_units(const char *text, const learner *l, pipeline_plan *plan)
{
    if (l->unit_count == 0)
        return tw_fail(TW_ERROR_UNSUPPORTED, "--pipeline %s: task %s has a network that cannot be cut into stages",
                       text, l->task->ops->name);
    if (l->unit_count > PIPELINE_UNITS)
        return tw_fail(TW_ERROR_UNSUPPORTED,
                       "--pipeline %s: a network of %zu layers is cut into stages; this one has %zu", text,
                       (size_t)PIPELINE_UNITS, l->unit_count);
    if (l->unit_count < plan->stages)
        return tw_fail(TW_ERROR_ARGUMENT, "--pipeline %s: this network has %zu layers, too few for %zu stages", text,
                       l->unit_count, plan->stages);
    plan->units = l->unit_count;
    if (plan->cut > 0 && plan->ends[plan->cut - 1] != plan->units)
        return tw_fail(TW_ERROR_ARGUMENT, "--pipeline %s: the cut is of %zu layers, and this network has %zu", text,
                       plan->ends[plan->cut - 1], plan->units);
    return TW_OK;
}

static void count_elements(const learner *l, pipeline_plan *plan)
{
    for (size_t u = 0; u < l->unit_count; u++)
        plan->elements[u] = l->units[u].parameters - (u ? l->units[u - 1].parameters : 0);
}

/* A learner of one unit alone. */
static tw_status measure_unit(const train_settings *s, const task *work, size_t unit, pipeline_plan *plan)
{
    const nn_stage alone = {unit, unit + 1, NULL, receive_any, send_nowhere, send_back_nowhere};
    learner_place place = {.size = 1,
                           .batch = (size_t)s->batch,
                           .seed = (uint64_t)s->seed,
                           .precision = (nn_precision)s->compute,
                           .stage = &alone};
    learner *l = NULL;
    TW_TRY(task_learner_create(work, &place, &l));
    tw_status status = learn_units(s->pipeline, l, plan);
    if (status == TW_OK && plan->elements) count_elements(l, plan);
    if (status == TW_OK && plan->machine && plan->cut == 0) status = time_steps(l, &plan->machine->seconds[unit]);
    task_learner_destroy(l);
    return status;
}

static tw_status measure(const worker *w, pipeline_plan *plan)
{
    const int shared = strcmp(tw_comm_transport(w->comm), "threads") == 0;
    plan->machine->room = machine_memory() / (shared ? w->size : 1);
    TW_TRY(measure_unit(&w->settings, w->task, 0, plan));
    for (size_t u = 1; plan->cut == 0 && u < plan->units; u++) TW_TRY(measure_unit(&w->settings, w->task, u, plan));
    return TW_OK;
}

/* ---- cutting ---- */

static tw_status choose_cut(const worker *w, pipeline_plan *plan, const pipeline_machine *machines)
{
    const size_t states = (w->settings.optimizer == OPTIMISER_SGD ? 1 : 2) + (plan->accumulate > 1);
    const pipeline_problem problem = {plan->units, plan->stages, machines, plan->elements, states};
    if (isfinite(pipeline_cut(&problem, plan->ends))) return TW_OK;
    return tw_fail(TW_ERROR_MEMORY,
                   "--pipeline %s: the stages fit the memory of their machines in no cut of %zu layers",
                   w->settings.pipeline, plan->units);
}

/* It is another's word. */
static tw_status check_cut(const pipeline_plan *plan)
{
    size_t s = 0, first = 0;
    while (s < plan->stages && plan->ends[s] > first && plan->ends[s] <= plan->units) first = plan->ends[s++];
    if (s == plan->stages && first == plan->units) return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "rank 0 tells of a cut that is none of %zu layers into %zu stages", plan->units,
                   plan->stages);
}

/* Rank 0's answer counts: machines may add up in another plan. */
static tw_status agree_cut(worker *w, pipeline_plan *plan)
{
    pipeline_machine *machines = calloc((size_t)w->size, sizeof *machines);
    if (!machines) return tw_fail(TW_ERROR_MEMORY, "no memory to hear %d workers", w->size);
    tw_status status = tw_comm_allgather(w->comm, plan->machine, sizeof *machines, machines);
    if (status == TW_OK) status = choose_cut(w, plan, machines);
    free(machines);
    TW_TRY(status);
    TW_TRY(tw_comm_broadcast(w->comm, 0, plan->ends, sizeof plan->ends));
    return check_cut(plan);
}

/* What was chosen is what a resumed run has, and what --pipeline may be told. Who stands by is each start's affair. */
static tw_status write_out(worker *w, pipeline_plan *plan)
{
    size_t size;
    FILE *stream = open_memstream(&plan->text, &size);
    if (!stream) return tw_fail(TW_ERROR_MEMORY, "no memory for the text of --pipeline");
    fprintf(stream, "stages=%zu,accumulate=%zu,values=%s,cut=", plan->stages, plan->accumulate,
            stage_values_names[plan->values]);
    for (size_t s = 0; s < plan->stages; s++)
        fprintf(stream, "%s%zu", s ? "+" : "", plan->ends[s] - (s ? plan->ends[s - 1] : 0));
    if (fclose(stream) != 0) return tw_fail(TW_ERROR_MEMORY, "no memory for the text of --pipeline");
    w->settings.pipeline = plan->text;
    return TW_OK;
}

/* ---- all of it ---- */

tw_status pipeline_plan_open(const worker *w, pipeline_plan *plan)
{
    const char *text = w->settings.pipeline;
    TW_TRY(pipeline_plan_parse(text, plan));
    TW_TRY(check_company(&w->settings, plan->stages, (size_t)w->size));
    plan->machine = calloc(1, sizeof *plan->machine);
    plan->elements = calloc(PIPELINE_UNITS, sizeof *plan->elements);
    if (!plan->machine || !plan->elements) return tw_fail(TW_ERROR_MEMORY, "no memory for a list of layers");
    return measure(w, plan);
}

tw_status pipeline_plan_agree(worker *w, pipeline_plan *plan)
{
    if (plan->cut == 0) TW_TRY(agree_cut(w, plan));
    return write_out(w, plan);
}

void pipeline_plan_close(pipeline_plan *plan)
{
    free(plan->machine);
    free(plan->elements);
    free(plan->text);
}
