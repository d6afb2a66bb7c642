#include "run.h"
#include "agree.h"
#include "checkpoint.h"
#include "error.h"
#include "expectation.h"
#include "journal.h"
#include "summary.h"
#include <math.h>

/* What a run keeps between its steps, beside the worker. */
typedef struct run {
    worker worker;
    journal journal;
    stop_vote vote;
    uint64_t saved_step;     /* of the newest checkpoint */
    uint64_t evaluated_step; /* that `evaluation` speaks of */
    evaluation evaluation;
} run;

#define NEVER UINT64_MAX

static tw_status evaluate(run *r)
{
    TW_TRY(worker_evaluate(&r->worker, &r->evaluation));
    r->evaluated_step = r->worker.step;
    TW_TRY(journal_epoch(&r->journal, &r->worker, &r->evaluation));
    if (isfinite(r->evaluation.loss)) return TW_OK;
    r->worker.agreed = 1; /* all ranks have the same figures */
    return worker_diverged(&r->worker, "the loss of the test images is NaN or infinite");
}

static tw_status save(run *r)
{
    if (r->saved_step == r->worker.step) return TW_OK;
    TW_TRY(checkpoint_write(&r->worker));
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
    if (epoch_ended || last) TW_TRY(evaluate(r));
    int due = s->checkpoint_every > 0 ? is_due(w->step, s->checkpoint_every) : epoch_ended;
    return due || last ? save(r) : TW_OK;
}

static tw_status step(run *r)
{
    double loss;
    TW_TRY(worker_step(&r->worker, &loss));
    TW_TRY(journal_step(&r->journal, &r->worker, loss));
    return after_step(r);
}

static tw_status finish(run *r)
{
    totals mean;
    if (r->evaluated_step != r->worker.step) TW_TRY(evaluate(r));
    TW_TRY(summary_gather(&r->worker, &mean));
    TW_TRY(agree_status(&r->worker, journal_end(&r->journal, &r->worker, &r->evaluation, &mean)));
    return expectation_check(&r->worker, &mean);
}

static tw_status begin(run *r)
{
    worker *w = &r->worker;
    const train_settings *s = &w->settings;
    if (s->resume) {
        TW_TRY(checkpoint_resume(w));
        r->saved_step = w->step;
    }
    TW_TRY(agree_status(w, worker_plan_capture(w)));
    TW_TRY(worker_spread(w));
    return agree_status(w, w->rank == 0 ? journal_open(&r->journal, w) : TW_OK);
}

static tw_status train(run *r, int *interrupted)
{
    TW_TRY(begin(r));
    while (r->worker.step < r->worker.steps) {
        TW_TRY(agree_to_stop(&r->worker, &r->vote, interrupted));
        if (*interrupted) {
            TW_TRY(save(r));
            journal_interrupted(&r->journal, &r->worker);
            return TW_OK;
        }
        TW_TRY(step(r));
    }
    return finish(r);
}

tw_status run_worker(const train_settings *settings, const dataset *data, tw_comm *comm, run_result *result)
{
    run r = {.saved_step = NEVER, .evaluated_step = NEVER};
    *result = (run_result){0};
    tw_status status = worker_create(settings, data, comm, &r.worker);
    if (status == TW_OK) status = train(&r, &result->interrupted);
    result->agreed = r.worker.agreed;
    result->diverged = r.worker.diverged;
    journal_close(&r.journal);
    worker_release(&r.worker);
    return status;
}
