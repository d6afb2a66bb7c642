#include "agree.h"
#include "best.h"
#include "checkpoint.h"
#include "disk.h"
#include "error.h"
#include "exchange.h"
#include "expect_ratio.h"
#include "folder.h"
#include "init_from.h"
#include "interrupt.h"
#include "run_state.h"
#include "summary.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A journal that cannot be written any more ends the run, but only when all ranks have saved where they are. */
static tw_status note(run *r, tw_status written)
{
    if (written != TW_ERROR_IO || r->unwritten != TW_OK) return written == TW_ERROR_IO ? TW_OK : written;
    snprintf(r->unwritten_text, sizeof r->unwritten_text, "%s", tw_last_error());
    r->unwritten = written;
    r->worker.stops = 1;
    return TW_OK;
}

static tw_status refuse_unread(run *r, task_split split)
{
    r->worker.agreed = 1; /* and they all have read nothing */
    return tw_fail(TW_ERROR_IO, "none of the %s data could be read at step %llu; they were in %s when the run began",
                   task_split_name(split), (unsigned long long)r->worker.step, r->worker.task->path);
}

/* In a group nobody begins where one was asked to stop already. Who is asked on its way keeps what there is before it
 * waits for the others. */
static tw_status look(run *r, task_split split, evaluation *seen)
{
    evaluation_share own;
    worker *w = &r->worker;
    if (!r->group || !w->learner->stops) return worker_evaluate(w, split, seen);
    seen->is_cut = interrupt_asked();
    TW_TRY(agree_any(w->comm, &seen->is_cut));
    if (seen->is_cut) return TW_OK;
    TW_TRY(worker_look(w, split, &own));
    w->unseen = own.stops > 0;
    if (w->unseen) TW_TRY(keep_alone(r));
    return worker_gather_looks(w, split, &own, seen);
}

/* Whoever was asked to stop leaves the group, when its steps since the last round are in one, too. */
static tw_status let_go(run *r)
{
    worker *w = &r->worker;
    TW_TRY(worker_show_own(w));
    if (w->taken > 0) TW_TRY(worker_end(w));
    return keep_look(r);
}

/* Once after a step. Where the run is asked to stop meanwhile, what was seen is not told: the resumed run looks again,
 * or those who stay in a group. */
static tw_status run_evaluate(run *r, task_split split)
{
    if (r->looked[split] == r->worker.step) return TW_OK;
    evaluation *seen = &r->looks[split];
    TW_TRY(look(r, split, seen));
    if (r->worker.unseen) r->saved_step = NEVER; /* the checkpoint says that it stands to be done */
    r->worker.unseen = seen->is_cut;
    if (seen->is_cut) return r->group ? let_go(r) : TW_OK;
    if (seen->score.count == 0) return refuse_unread(r, split);
    r->looked[split] = r->worker.step;
    best_observe(&r->worker, seen);
    TW_TRY(note(r, journal_epoch(&r->journal, &r->worker, seen)));
    if (isfinite(seen->loss)) return TW_OK;
    r->worker.agreed = 1; /* all ranks have the same figures */
    return worker_diverged(&r->worker, "the loss over unseen data is NaN or infinite");
}

/* A checkpoint of workers that come and go is rank 0's alone, with which a group, or one worker, can go on. */
static tw_status write_checkpoint(run *r)
{
    worker *w = &r->worker;
    if (!r->group) return checkpoint_write(w);
    if (w->rank == 0) return keep_by_itself(r, checkpoint_write);
    w->best.folder = w->best.step; /* as rank 0 has it from here on */
    return TW_OK;
}

static tw_status run_save(run *r)
{
    if (r->saved_step == r->worker.step) return TW_OK;
    worker *w = &r->worker;
    TW_TRY(agree_status(w, w->rank == 0 ? journal_keep(&r->journal, w) : TW_OK));
    TW_TRY(write_checkpoint(r));
    r->saved_step = r->worker.step;
    return TW_OK;
}

static int is_due(uint64_t step, long every)
{
    return every > 0 && step % (uint64_t)every == 0;
}

/* Whether an epoch has ended that is looked at. */
static int has_epoch(const worker *w)
{
    return w->step % (w->steps_per_epoch * (uint64_t)w->settings.evaluate_every) == 0;
}

/* What stands to be done after a step, with the weights that all share. */
typedef struct duties {
    int check, evaluate, observe, save;
} duties;

static duties find_duties(const worker *w)
{
    const train_settings *s = &w->settings;
    const int last = w->step == w->steps, is_made_up_for = w->unseen && !last; /* epochs may be others by now */
    const int epoch_ended = has_epoch(w) || is_made_up_for;
    int save = s->checkpoint_every > 0 ? is_due(w->step, s->checkpoint_every) : epoch_ended;
    return (duties){is_due(w->step, s->check_every) || last, epoch_ended || last, epoch_ended, save || last};
}

/* The next step after which there are some. Replicas' checks are not counted: where it matters, there are none. */
static uint64_t next_rest(const worker *w)
{
    const train_settings *s = &w->settings;
    const uint64_t every = (uint64_t)s->checkpoint_every, epochs = w->steps_per_epoch * (uint64_t)s->evaluate_every;
    uint64_t rest = (w->step / epochs + 1) * epochs;
    if (every > 0 && (w->step / every + 1) * every < rest) rest = (w->step / every + 1) * every;
    return rest < w->steps ? rest : w->steps;
}

static tw_status do_duties(run *r, const duties *due)
{
    worker *w = &r->worker;
    task_split watched = task_watched(w->task);
    if (due->check) TW_TRY(worker_check_replicas(w));
    if (due->evaluate) TW_TRY(run_evaluate(r, watched));
    if (due->observe && !w->unseen) schedule_observe(&w->schedule, r->looks[watched].loss);
    return due->save || w->best.step == w->step ? run_save(r) : TW_OK;
}

static tw_status do_due(run *r)
{
    worker *w = &r->worker;
    duties due = find_duties(w);
    if (!due.check && !due.evaluate && !due.save) return TW_OK;
    if (w->exchange->side_by_side && w->step == w->steps) { /* what is looked at is what the last round makes */
        TW_TRY(worker_end(w));
        return do_duties(r, &due);
    }
    TW_TRY(worker_show_shared(w));
    TW_TRY(do_duties(r, &due));
    return worker_show_own(w);
}

/* Where it fails, the next generation does it again. */
static tw_status after_step(run *r)
{
    r->cut = 1;
    TW_TRY(do_due(r));
    r->cut = 0;
    return TW_OK;
}

static tw_status run_step(run *r)
{
    double loss;
    r->worker.rest = next_rest(&r->worker);
    TW_TRY(worker_step(&r->worker, &loss));
    TW_TRY(note(r, journal_step(&r->journal, &r->worker, loss)));
    return after_step(r);
}

/* The figures of the weights that the run is summed up with: the last, or the best by validation. */
static tw_status judge(run *r)
{
    worker *w = &r->worker;
    const task_score *best = &w->best.score;
    evaluation *validation = &r->looks[TASK_VALIDATION];
    TW_TRY(run_evaluate(r, task_watched(w->task)));
    if (w->unseen) return TW_OK;
    TW_TRY(best_take(w));
    if (w->judged) {
        validation->step = w->judged;
        validation->score = *best;
        validation->loss = best->loss / best->count;
    }
    if (r->group) w->learner->stops = NULL; /* all is kept: who is asked to stop ends with the others */
    return w->task->has_test ? run_evaluate(r, TASK_TEST) : TW_OK;
}

/* Before the end, and after a checkpoint. */
static tw_status stop(run *r)
{
    TW_TRY(agree_status(&r->worker, keep_tell_unwritten(r)));
    journal_interrupted(&r->journal, &r->worker);
    return TW_OK;
}

static tw_status run_finish(run *r, int *interrupted)
{
    totals mean;
    const task *t = r->worker.task;
    TW_TRY(judge(r));
    *interrupted = r->worker.unseen;
    if (*interrupted) return stop(r);
    TW_TRY(agree_status(&r->worker, worker_settle(&r->worker)));
    TW_TRY(summary_gather(&r->worker, &mean));
    const evaluation *validation = t->has_validation ? &r->looks[TASK_VALIDATION] : NULL;
    tw_status ended = journal_end(&r->journal, &r->worker, &r->looks[task_final(t)], validation, &mean);
    TW_TRY(agree_status(&r->worker, r->unwritten != TW_OK ? keep_tell_unwritten(r) : ended));
    return expect_ratio_check(&r->worker, &mean);
}

/* Its result is told again, which is no training. */
static void tell_finished(const worker *w)
{
    if (w->step < w->steps || w->rank != 0 || w->settings.quiet) return;
    fprintf(
        stderr,
        "thinwire: %s is finished: all its %llu steps were taken, and none is left; --epochs or --steps, larger than "
        "before, trains on\n",
        w->settings.out ? w->settings.out : w->settings.resume, (unsigned long long)w->steps);
}

/* Whoever is first on a disk leaves there what the run was told. */
static tw_status open_journals(run *r)
{
    worker *w = &r->worker;
    TW_TRY(agree_status(w, w->rank == 0 ? journal_open(&r->journal, w) : TW_OK));
    if (!w->settings.out) return TW_OK;
    TW_TRY(agree_status(w, folder_open(w->settings.out)));
    TW_TRY(disk_elect(w, w->settings.out, &w->first_on_disk));
    return agree_status(w, w->first_on_disk && w->rank > 0 ? journal_share(&r->journal, w) : TW_OK);
}

tw_status run_take_start(run *r, int resumes)
{
    worker *w = &r->worker;
    if (!resumes) return w->settings.init_from || w->learner->based ? init_from_take(w) : TW_OK;
    TW_TRY(checkpoint_resume(w));
    r->saved_step = w->unseen ? NEVER : w->step;
    if (!r->trace || !r->trace->begun) tell_finished(w);
    return TW_OK;
}

/* Whoever takes a lost stage's place finds a checkpoint of this course in the run's folder, from the first step on. */
static tw_status save_start(run *r)
{
    worker *w = &r->worker;
    r->begun = 1;
    if (w->settings.resume && !*w->settings.resume) return TW_OK;
    r->saved_step = NEVER;
    const tw_status saved = run_save(r);
    return saved == TW_OK ? worker_show_own(w) : saved;
}

static tw_status run_begin(run *r)
{
    worker *w = &r->worker;
    const train_settings *s = &w->settings;
    TW_TRY(agree_status(w, w->rank == 0 ? journal_lock(&r->journal, w) : TW_OK));
    TW_TRY(run_take_start(r, s->resume != NULL));
    TW_TRY(keep_choose_folder(w));
    TW_TRY(agree_status(w, worker_plan_dump(w)));
    TW_TRY(worker_begin(w));
    TW_TRY(open_journals(r));
    return r->trace ? save_start(r) : TW_OK;
}

/* Rank 0's own weights at the end of an epoch, for a person who waits. */
static tw_status evaluate_own(run *r)
{
    evaluation result;
    TW_TRY(worker_read(&r->worker));
    TW_TRY(worker_evaluate_own(&r->worker, task_watched(r->worker.task), &result));
    if (result.is_cut) return TW_OK;
    return note(r, journal_epoch(&r->journal, &r->worker, &result));
}

/* In a group the step at which all look is an epoch's last more often than not. */
static int looks_alone(const run *r, uint64_t target)
{
    const worker *w = &r->worker;
    const int all_look = r->group && w->task->has_validation && w->step == target;
    return w->rank == 0 && has_epoch(w) && w->step < w->steps && !all_look;
}

static tw_status wants_stop(run *r, int *wanted)
{
    worker *w = &r->worker;
    if (w->synchronous) return agree_to_stop(w, &r->vote, wanted);
    *wanted = interrupt_asked() || w->spoilt || w->stops;
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
        if (looks_alone(r, target)) TW_TRY(evaluate_own(r));
    }
    return TW_OK;
}

/* The workers become one again; *stopped: of some rank that did not reach its target. */
static tw_status run_meet(run *r, int *stopped)
{
    worker *w = &r->worker;
    TW_TRY(worker_end(w));
    TW_TRY(agree_status(w, w->spoilt ? worker_spoilt(w) : TW_OK));
    if (!r->group) TW_TRY(agree_any(w->comm, stopped));
    return worker_check_replicas(w);
}

/* The step, the same on every rank, at which the workers meet for a checkpoint or because the run ends; or at once, for
 * what is still to be looked at of the run that goes on. */
static tw_status next_meeting(run *r, uint64_t *target)
{
    const worker *w = &r->worker;
    uint64_t every = w->settings.out ? (uint64_t)w->settings.checkpoint_every : 0;
    if (r->group && !every) every = w->steps_per_epoch; /* so that newcomers come in */
    uint64_t first[] = {w->step, every}; /* after an interruption the step, and in a group --out, is not all ranks' */
    TW_TRY(tw_comm_broadcast(w->comm, 0, first, sizeof first));
    *target = first[1] > 0 ? (first[0] / first[1] + 1) * first[1] : w->steps;
    if (w->unseen) *target = first[0];
    if (*target > w->steps) *target = w->steps;
    return TW_OK;
}

/* Each at a step of its own. */
static tw_status train_apart(run *r, int *interrupted)
{
    worker *w = &r->worker;
    uint64_t target = 0;
    for (;;) {
        TW_TRY(next_meeting(r, &target));
        TW_TRY(walk(r, target, interrupted));
        TW_TRY(run_meet(r, interrupted));
        if (r->group) *interrupted = 0; /* who was asked to stop leaves, and the others go on */
        if (r->group) w->step = target;
        int last = r->group ? w->step == w->steps : target == w->steps;
        w->unseen &= *interrupted;
        if (!*interrupted && (last || w->task->has_validation)) TW_TRY(run_evaluate(r, task_watched(w->task)));
        TW_TRY(write_checkpoint(r));
        *interrupted |= w->unseen;
        if (*interrupted) return stop(r);
        if (last) return run_finish(r, interrupted);
        if (r->group) TW_TRY(keep_look(r));
        TW_TRY(worker_begin(w));
    }
}

/* After a checkpoint, from which the run then goes on. TW_ERROR_PEER: somebody comes to stand by, or one who did is
 * lost. */
static tw_status look_for_standby(const run_trace *trace)
{
    return group_stay(trace->group, trace->whole);
}

static tw_status train_together(run *r, int *interrupted)
{
    worker *w = &r->worker;
    if (w->unseen) TW_TRY(after_step(r)); /* of the run that goes on */
    if (!r->group) TW_TRY(replan_begin(&r->replan, w));
    while (w->step < w->steps && !w->unseen) {
        const int meets = !w->exchange->meets || w->exchange->meets(w);
        if (meets && !r->group) TW_TRY(agree_to_stop(w, &r->vote, interrupted));
        if (*interrupted) break;
        if (meets && !r->group) TW_TRY(replan_before_step(&r->replan, w));
        TW_TRY(run_step(r));
        if (meets && r->group && w->step < w->steps) TW_TRY(keep_look(r));
        if (r->trace && r->saved_step == w->step && w->step < w->steps) TW_TRY(look_for_standby(r->trace));
    }
    *interrupted |= w->unseen;
    if (!*interrupted) return run_finish(r, interrupted);
    tw_status lost = w->spoilt ? worker_spoilt(w) : TW_OK; /* with weights of its own: its gradients are spoilt */
    TW_TRY(agree_status(w, lost));
    TW_TRY(worker_show_shared(w));
    TW_TRY(run_save(r));
    return stop(r);
}

/* mpirun has one terminal for all. */
static void answer_signals(const worker *w)
{
    const int alone = strcmp(tw_comm_transport(w->comm), "mpi") != 0;
    if (!w->settings.quiet && (alone || w->rank == 0)) interrupt_answers();
}

tw_status run_on(run *r, int *interrupted)
{
    answer_signals(&r->worker);
    const exchange *way = r->worker.exchange;
    return way->replicas || way->side_by_side ? train_together(r, interrupted) : train_apart(r, interrupted);
}

/* A checkpoint of another folder, or of a course that is left, is none to go back to. */
static void leave_trace(const run *r)
{
    run_trace *trace = r->trace;
    const char *pipeline = r->worker.settings.pipeline;
    if (!trace) return;
    trace->begun |= r->begun;
    if (r->begun && r->saved_step != NEVER) trace->saved = (int64_t)r->saved_step;
    if (pipeline != trace->pipeline && strstr(pipeline, "cut="))
        snprintf(trace->pipeline, sizeof trace->pipeline, "%s", pipeline);
}

tw_status run_stage(const train_settings *settings, const task *work, tw_comm *comm, run_trace *trace,
                    run_result *result)
{
    run r = {.saved_step = NEVER, .looked = {NEVER, NEVER}, .trace = trace};
    *result = (run_result){0};
    tw_status status = worker_create(settings, work, comm, &r.worker);
    if (status == TW_OK) status = run_begin(&r);
    if (status == TW_OK) status = run_on(&r, &result->interrupted);
    leave_trace(&r);
    result->agreed = r.worker.agreed;
    result->diverged = r.worker.diverged;
    replan_end(&r.replan);
    journal_close(&r.journal);
    worker_release(&r.worker);
    return status;
}

tw_status run_worker(const train_settings *settings, const task *work, tw_comm *comm, run_result *result)
{
    return run_stage(settings, work, comm, NULL, result);
}
