#include "run.h"
#include "agree.h"
#include "checkpoint.h"
#include "error.h"
#include "expectation.h"
#include "gossip.h"
#include "interrupt.h"
#include "journal.h"
#include "summary.h"
#include <math.h>
#include <stdio.h>

/* What a run keeps between its steps, beside the worker. */
typedef struct run {
    worker worker;
    journal journal;
    stop_vote vote;
    uint64_t saved_step;     /* of the newest checkpoint */
    uint64_t evaluated_step; /* that `evaluation` speaks of */
    evaluation evaluation;
    tw_status unwritten; /* what became of rank 0's journal, and how that was told */
    char unwritten_text[512];
} run;

#define NEVER UINT64_MAX

/* A journal that cannot be written any more ends the run, but only when all ranks have saved where they are. */
static tw_status note(run *r, tw_status written)
{
    if (written != TW_ERROR_IO || r->unwritten != TW_OK) return written == TW_ERROR_IO ? TW_OK : written;
    snprintf(r->unwritten_text, sizeof r->unwritten_text, "%s", tw_last_error());
    r->unwritten = written;
    r->worker.stops = 1;
    return TW_OK;
}

static tw_status tell_unwritten(const run *r)
{
    const worker *w = &r->worker;
    if (r->unwritten == TW_OK) return TW_OK;
    return tw_fail(r->unwritten,
                   "%s; the run has stopped after step %llu, and that step's checkpoint is in %s/checkpoints",
                   r->unwritten_text, (unsigned long long)w->step, w->settings.out);
}

static tw_status evaluate(run *r, task_split split)
{
    TW_TRY(worker_evaluate(&r->worker, split, &r->evaluation));
    r->evaluated_step = r->worker.step;
    TW_TRY(note(r, journal_epoch(&r->journal, &r->worker, &r->evaluation)));
    if (isfinite(r->evaluation.loss)) return TW_OK;
    r->worker.agreed = 1; /* all ranks have the same figures */
    return worker_diverged(&r->worker, "the loss over unseen data is NaN or infinite");
}

static tw_status save(run *r)
{
    if (r->saved_step == r->worker.step) return TW_OK;
    worker *w = &r->worker;
    TW_TRY(agree_status(w, w->rank == 0 ? journal_keep(&r->journal, w) : TW_OK));
    TW_TRY(checkpoint_write(w));
    r->saved_step = r->worker.step;
    return TW_OK;
}

static int is_due(uint64_t step, long every)
{
    return every > 0 && step % (uint64_t)every == 0;
}

/* What stands to be done after a step. */
static tw_status after_step(run *r)
{
    worker *w = &r->worker;
    const train_settings *s = &w->settings;
    int last = w->step == w->steps, epoch_ended = w->step % w->steps_per_epoch == 0;
    if (is_due(w->step, s->check_every) || last) TW_TRY(agree_replicas(w));
    if (epoch_ended || last) TW_TRY(evaluate(r, TASK_VALIDATION));
    if (epoch_ended) schedule_observe(&w->schedule, r->evaluation.loss);
    int due = s->checkpoint_every > 0 ? is_due(w->step, s->checkpoint_every) : epoch_ended;
    return due || last ? save(r) : TW_OK;
}

static tw_status step(run *r)
{
    double loss;
    TW_TRY(worker_step(&r->worker, &loss));
    TW_TRY(note(r, journal_step(&r->journal, &r->worker, loss)));
    return after_step(r);
}

static tw_status finish(run *r)
{
    totals mean;
    int tested = r->evaluated_step == r->worker.step && !r->worker.task->ops->has_validation;
    if (!tested) TW_TRY(evaluate(r, TASK_TEST));
    TW_TRY(summary_gather(&r->worker, &mean));
    tw_status ended = journal_end(&r->journal, &r->worker, &r->evaluation, &mean);
    TW_TRY(agree_status(&r->worker, r->unwritten != TW_OK ? tell_unwritten(r) : ended));
    return expectation_check(&r->worker, &mean);
}

/* Before the end, and after a checkpoint. */
static tw_status stop(run *r)
{
    TW_TRY(agree_status(&r->worker, tell_unwritten(r)));
    journal_interrupted(&r->journal, &r->worker);
    return TW_OK;
}

static tw_status begin(run *r)
{
    worker *w = &r->worker;
    const train_settings *s = &w->settings;
    TW_TRY(agree_status(w, w->rank == 0 ? journal_lock(&r->journal, w) : TW_OK));
    if (s->resume) {
        TW_TRY(checkpoint_resume(w));
        r->saved_step = w->step;
    }
    TW_TRY(agree_status(w, worker_plan_capture(w)));
    TW_TRY(w->gossips ? gossip_join(w) : worker_spread(w));
    return agree_status(w, w->rank == 0 ? journal_open(&r->journal, w) : TW_OK);
}

/* Rank 0's own weights at the end of an epoch, for a person who waits. */
static tw_status evaluate_own(run *r)
{
    evaluation result;
    TW_TRY(gossip_read(&r->worker));
    TW_TRY(worker_evaluate_own(&r->worker, TASK_VALIDATION, &result));
    return note(r, journal_epoch(&r->journal, &r->worker, &result));
}

static tw_status wants_stop(run *r, int *wanted)
{
    worker *w = &r->worker;
    if (w->synchronous) return agree_to_stop(w, &r->vote, wanted);
    *wanted = interrupt_asked() || w->lost || w->stops;
    return TW_OK;
}

/* This worker's steps up to `target`, with no regard to how far the others are. */
static tw_status walk(run *r, uint64_t target, int *stopped)
{
    worker *w = &r->worker;
    double loss;
    while (w->step < target) {
        TW_TRY(wants_stop(r, stopped));
        if (*stopped) return TW_OK;
        TW_TRY(worker_step(w, &loss));
        TW_TRY(note(r, journal_step(&r->journal, w, loss)));
        if (w->rank == 0 && w->step % w->steps_per_epoch == 0 && w->step < w->steps) TW_TRY(evaluate_own(r));
    }
    return TW_OK;
}

/* The workers become one again; *stopped: of some rank that did not reach its target. */
static tw_status meet(run *r, int *stopped)
{
    worker *w = &r->worker;
    TW_TRY(gossip_leave(w));
    TW_TRY(agree_status(w, w->lost ? worker_lost(w) : TW_OK));
    TW_TRY(agree_any(w->comm, stopped));
    return agree_replicas(w);
}

/* The step, the same on every rank, at which the workers meet for a checkpoint or because the run ends. */
static tw_status next_meeting(run *r, uint64_t *target)
{
    const worker *w = &r->worker;
    uint64_t step = w->step, every = w->settings.out ? (uint64_t)w->settings.checkpoint_every : 0;
    TW_TRY(tw_comm_broadcast(w->comm, 0, &step, sizeof step)); /* after an interruption it is not the same on all */
    *target = every > 0 ? (step / every + 1) * every : w->steps;
    if (*target > w->steps) *target = w->steps;
    return TW_OK;
}

static tw_status train_by_gossip(run *r, int *interrupted)
{
    worker *w = &r->worker;
    uint64_t target = 0;
    for (;;) {
        TW_TRY(next_meeting(r, &target));
        TW_TRY(walk(r, target, interrupted));
        TW_TRY(meet(r, interrupted));
        if (*interrupted || target == w->steps) break;
        TW_TRY(checkpoint_write(w));
        TW_TRY(gossip_join(w));
    }
    if (!*interrupted) TW_TRY(evaluate(r, TASK_VALIDATION));
    TW_TRY(checkpoint_write(w));
    return *interrupted ? stop(r) : finish(r);
}

static tw_status train(run *r, int *interrupted)
{
    TW_TRY(begin(r));
    if (r->worker.gossips) return train_by_gossip(r, interrupted);
    while (r->worker.step < r->worker.steps) {
        TW_TRY(agree_to_stop(&r->worker, &r->vote, interrupted));
        if (*interrupted) {
            TW_TRY(save(r));
            return stop(r);
        }
        TW_TRY(step(r));
    }
    return finish(r);
}

tw_status run_worker(const train_settings *settings, const task *work, tw_comm *comm, run_result *result)
{
    run r = {.saved_step = NEVER, .evaluated_step = NEVER};
    *result = (run_result){0};
    tw_status status = worker_create(settings, work, comm, &r.worker);
    if (status == TW_OK) status = train(&r, &result->interrupted);
    result->agreed = r.worker.agreed;
    result->diverged = r.worker.diverged;
    journal_close(&r.journal);
    worker_release(&r.worker);
    return status;
}
