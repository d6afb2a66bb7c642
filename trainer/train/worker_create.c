/* worker_create.c - a worker is made for its --sync, released, and given another spec in the midst of a run. */
#include "agree.h"
#include "error.h"
#include "exchange.h"
#include "exchange_paged.h"
#include "exchange_pipeline.h"
#include "interrupt.h"
#include "scheme.h"
#include "scheme_text.h"
#include "tensor_table.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plan.h>

/* A scheme that gives Adam's direction has the run's beta2 and epsilon, unless --sync speaks of them. */
static void hand_over(char **spec, const char *option, double value)
{
    char text[32], *before = *spec;
    if (!before || scheme_text_sets(before, option)) return;
    snprintf(text, sizeof text, "%.9g", value);
    *spec = scheme_text_with(before, option, text);
    free(before);
}

static tw_status no_memory_for_spec(void)
{
    return tw_fail(TW_ERROR_MEMORY, "no memory for the spec of --sync");
}

tw_status worker_spec(const worker *w, const char *sync, char **spec)
{
    const train_settings *s = &w->settings;
    *spec = scheme_for_run(sync, w->steps);
    if (*spec && s->optimizer != OPTIMISER_SGD && scheme_adapts(*spec)) {
        hand_over(spec, "beta2", s->beta2);
        hand_over(spec, "epsilon", s->epsilon);
    }
    return *spec ? TW_OK : no_memory_for_spec();
}

static tw_status write_spec(worker *w)
{
    TW_TRY(worker_spec(w, w->sync, &w->spec));
    w->spec_in_full = scheme_in_full(w->spec);
    if (!w->spec_in_full) return no_memory_for_spec();
    w->scheme_warmup = fmax(0, scheme_number(w->spec, "warmup_steps")); /* without one: not a number */
    w->scheme_every = scheme_number(w->spec, "every");
    return TW_OK;
}

static tw_status plan_steps(worker *w)
{
    const train_settings *s = &w->settings;
    TW_TRY(pipeline_count_steps(w));
    w->steps = s->steps > 0 ? (uint64_t)s->steps : (uint64_t)s->epochs * w->steps_per_epoch;
    TW_TRY(slowdown_parse(s->slow, s->pause, w->rank, w->size, w->steps, &w->slowdown));
    /* Where neither a person, nor the task, nor the model has a wish. */
    const char *wish = s->schedule ? s->schedule : "constant";
    TW_TRY(write_spec(w));
    return schedule_parse(wish, s->lr, (uint64_t)s->warmup, w->steps, w->steps_per_epoch, &w->schedule);
}

static tw_status choose_way(worker *w)
{
    size_t scheme;
    TW_TRY(scheme_check(w->sync));
    w->exchange = exchange_find(w->sync, &scheme);
    /* Who steps along its own gradient has clipped that, and nothing else. */
    w->own_clip = w->exchange->side_by_side || scheme_is_exact(w->sync) ? 0 : w->settings.clip * sqrt(w->size);
    w->synchronous = exchange_is_synchronous(w->exchange, scheme);
    w->way = calloc(1, w->exchange->bytes);
    return w->way ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for what --sync %s keeps", w->sync);
}

/* Another spec makes another exchange, of a network that each worker has in memory as a whole; and who comes to a group
 * begins with --sync. */
static tw_status check_company(const worker *w, const run_change *first)
{
    const char *unfit = w->pager               ? "--memory-budget"
                        : w->settings.pipeline ? "--pipeline"
                        : w->settings.changing ? "--join without --workers"
                                               : NULL;
    if (!unfit) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "planned-changes: after step %llu the run goes on with --sync %s, which does not go with %s; leave "
                   "one of the two out",
                   (unsigned long long)first->step, first->spec, unfit);
}

tw_status worker_read_changes(const worker *w, const char *text, run_changes *changes)
{
    TW_TRY(changes_read(text, changes));
    if (changes->count == 0) return TW_OK;
    TW_TRY(check_company(w, changes->all));
    TW_TRY(tw_plan_can_switch(w->settings.sync));
    for (size_t i = 0; i < changes->count; i++) TW_TRY(tw_plan_can_switch(changes->all[i].spec));
    return TW_OK;
}

static tw_status choose_scheme(worker *w)
{
    train_settings *s = &w->settings;
    w->sync = s->sync;
    TW_TRY(choose_way(w));
    s->sync_in_full = w->sync_in_full = scheme_in_full(s->sync);
    if (!w->sync_in_full) return no_memory_for_spec();
    return pipeline_open(w);
}

static tw_status create_learner(worker *w)
{
    const train_settings *s = &w->settings;
    if (s->memory_budget) TW_TRY(paged_open(w));
    learner_place place = {.rank = w->rank,
                           .size = w->size,
                           .batch = (size_t)s->batch,
                           .seed = (uint64_t)s->seed,
                           .precision = (nn_precision)s->compute,
                           .pager = w->pager};
    pipeline_place(w, &place);
    TW_TRY(task_learner_create(w->task, &place, &w->learner));
    if (w->pager) TW_TRY(paged_choose(w));
    w->mean_buffers = calloc(w->learner->buffer_count + 1, sizeof *w->mean_buffers);
    return w->mean_buffers ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for the running statistics");
}

static void tell_learner(worker *w)
{
    w->learner->steps = w->steps;
    w->learner->warmup = w->schedule.warmup;
    w->learner->stops = interrupt_asked;
    worker_let_sum(w, w->exchange->replicas);
}

static tw_status create_local(worker *w)
{
    TW_TRY(create_learner(w));
    TW_TRY(worker_read_changes(w, w->settings.planned_changes, &w->changes));
    TW_TRY(plan_steps(w));
    if (w->exchange->check) TW_TRY(w->exchange->check(w));
    tell_learner(w);
    return TW_OK;
}

/* A scheme with momentum of its own leaves none to the optimiser; what Adam's direction leaves is a step of SGD, and so
 * is what signs leave, with whose decay of its own AdamW may be written as well. */
static tw_status resolve_momentum(worker *w, optimiser_settings *resolved)
{
    train_settings *s = &w->settings;
    int nesterov = 0;
    float owned = w->exchange->momentum ? w->exchange->momentum(w, &nesterov) : 0;
    int gives_signs = scheme_gives_signs(w->spec);
    *resolved =
        (optimiser_settings){.momentum = (float)s->momentum,
                             .nesterov = s->nesterov,
                             .weight_decay = (float)s->weight_decay,
                             .directed = owned > 0 || gives_signs || scheme_adapts(w->spec),
                             .adapted = scheme_adapts(w->spec) || (gives_signs && s->optimizer == OPTIMISER_ADAMW),
                             .kind = (optimiser_kind)s->optimizer,
                             .beta2 = (float)s->beta2,
                             .epsilon = (float)s->epsilon};
    TW_TRY(optimiser_check(resolved, s->sync));
    if (!resolved->directed) return TW_OK;
    int scheme = (int)strcspn(s->sync, ":");
    if (s->momentum_given && (float)s->momentum != owned)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--momentum %g: scheme %.*s applies the momentum itself; write --sync %.*s:momentum=%g",
                       s->momentum, scheme, s->sync, scheme, s->sync, s->momentum);
    if (s->nesterov_given && s->nesterov && isnan(scheme_number(w->spec, "nesterov")))
        return tw_fail(TW_ERROR_ARGUMENT, "--nesterov: scheme %.*s has a momentum without that form; leave it out",
                       scheme, s->sync);
    if (s->nesterov_given && s->nesterov && !nesterov)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--nesterov: scheme %.*s applies the momentum itself; write --sync %.*s:nesterov=on", scheme,
                       s->sync, scheme, s->sync);
    if ((float)s->momentum != owned) s->momentum = owned;
    s->nesterov = nesterov && !resolved->adapted; /* --nesterov is of SGD, also when the run is resumed */
    resolved->momentum = resolved->adapted || gives_signs ? 0 : owned;
    resolved->nesterov = s->nesterov;
    if (resolved->adapted) resolved->kind = OPTIMISER_SGD;
    return TW_OK;
}

static tw_status create_optimiser(worker *w)
{
    optimiser_settings resolved;
    TW_TRY(resolve_momentum(w, &resolved));
    TW_TRY(optimiser_create(&resolved, w->learner->tensors, w->learner->tensor_count, &w->optimiser));
    return w->pager ? paged_attach(w) : TW_OK;
}

/* Which part of the network a learner is, all ranks have to know before they make it. */
static tw_status agree_cut(worker *w, tw_status chosen)
{
    TW_TRY(agree_status(w, chosen));
    return agree_status(w, pipeline_agree(w));
}

tw_status worker_create(const train_settings *settings, const task *work, tw_comm *comm, worker *w)
{
    *w = (worker){.settings = *settings, .task = work, .comm = comm, .started = tw_clock()};
    w->rank = tw_comm_rank(comm);
    w->size = tw_comm_size(comm);
    if (!settings->changing) w->settings.workers = w->size;
    tw_status chosen = choose_scheme(w);
    if (settings->pipeline) TW_TRY(agree_cut(w, chosen));
    TW_TRY(agree_status(w, chosen == TW_OK ? create_local(w) : chosen));
    if (w->exchange->create) TW_TRY(w->exchange->create(w));
    w->settings.sync_as_run = w->sync_as_run = scheme_in_full(w->spec);
    return agree_status(w, w->sync_as_run ? create_optimiser(w) : no_memory_for_spec());
}

static void release_way(worker *w)
{
    if (w->way) w->exchange->destroy(w);
    free(w->way);
    free(w->spec);
    free(w->spec_in_full);
    w->way = w->spec = w->spec_in_full = NULL;
}

void worker_release(worker *w)
{
    release_way(w);
    pager_destroy(w->pager);
    free(w->sync_in_full);
    free(w->sync_as_run);
    free(w->changes_text);
    free(w->pending);
    free(w->chosen_out);
    optimiser_destroy(w->optimiser);
    task_learner_destroy(w->learner);
    free(w->mean_buffers);
    dump_release(&w->dump);
}

/* ---- another spec in the midst of a run -------------------------------------------------------------------------- */

const exchange *worker_way_before(const worker *w, const run_changes *changes, uint64_t step)
{
    size_t scheme;
    return exchange_find(changes_before(changes, w->settings.sync, step), &scheme);
}

tw_status worker_keep_changes(worker *w)
{
    free(w->changes_text);
    w->settings.planned_changes = w->changes_text = w->changes.count > 0 ? changes_text(&w->changes) : NULL;
    if (w->changes_text || w->changes.count == 0) return TW_OK;
    return tw_fail(TW_ERROR_MEMORY, "no memory for the run's changes");
}

static tw_status take_way(worker *w)
{
    TW_TRY(choose_way(w));
    TW_TRY(write_spec(w));
    worker_let_sum(w, w->exchange->replicas);
    return TW_OK;
}

tw_status worker_take_spec(worker *w, const char *sync)
{
    if (strcmp(sync, w->sync) == 0) return TW_OK;
    TW_TRY(w->exchange->add_totals(w, &w->now));
    release_way(w);
    w->sync = sync;
    TW_TRY(agree_status(w, take_way(w)));
    return w->exchange->create ? w->exchange->create(w) : TW_OK;
}

/* The moments of local steps are a worker's own. */
static tw_status average_moments(worker *w)
{
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    const size_t count = optimiser_buffers(w->optimiser, buffers);
    for (size_t b = 0; b < count; b++) {
        TW_TRY(tw_comm_allreduce(w->comm, buffers[b].values, buffers[b].count));
        for (size_t i = 0; i < buffers[b].count; i++) buffers[b].values[i] /= (float)w->size;
    }
    return TW_OK;
}

static tw_status with_pending(worker *w, tw_status (*give)(worker *w, float *const *gradients))
{
    const learner *l = w->learner;
    float **tensors = calloc(l->tensor_count, sizeof *tensors);
    if (!tensors) return tw_fail(TW_ERROR_MEMORY, "no memory for what --sync %s has held back", w->sync);
    tensor_table_place(l->tensors, l->tensor_count, w->pending, tensors);
    tw_status status = give(w, tensors);
    free(tensors);
    return status;
}

/* What is pending already, of a step that was skipped, stays. */
static tw_status collect_pending(worker *w)
{
    if (!w->exchange->hand_over) return TW_OK;
    if (!w->pending) w->pending = calloc(w->learner->parameter_count, sizeof *w->pending);
    if (!w->pending) return tw_fail(TW_ERROR_MEMORY, "no memory for what --sync %s has held back", w->sync);
    return with_pending(w, w->exchange->hand_over);
}

static tw_status can_switch(worker *w, const char *sync)
{
    TW_TRY(tw_plan_can_switch(w->sync));
    return tw_plan_can_switch(sync);
}

tw_status worker_switch(worker *w, const char *sync)
{
    const int were_apart = w->exchange->side_by_side;
    TW_TRY(agree_status(w, can_switch(w, sync)));
    TW_TRY(agree_status(w, collect_pending(w)));
    TW_TRY(worker_end(w));
    TW_TRY(worker_take_spec(w, sync));
    if (were_apart && w->exchange->replicas) TW_TRY(average_moments(w));
    TW_TRY(worker_begin(w));
    return w->pending && w->exchange->take_over ? with_pending(w, w->exchange->take_over) : TW_OK;
}
