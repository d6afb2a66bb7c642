/* A member of a group whose workers come and go: each generation is a run of its own, which goes on where the last one
 * ended. */
#include "checkpoint.h"
#include "error.h"
#include "interrupt.h"
#include "run_state.h"
#include <stdio.h>
#include <stdlib.h>

static char empty[] = ""; /* of --resume: what is in --out */

/* What it would be if nobody came: the one that opens the group gives that to the others. */
static tw_status begin_alone(run *r)
{
    worker *w = &r->worker;
    const train_settings *s = &w->settings;
    if (s->out && *s->out) TW_TRY(journal_lock(&r->journal, w));
    TW_TRY(run_take_start(r, s->resume && r->group->has_weights));
    if (s->out && *s->out) TW_TRY(keep_folder(r));
    r->settings.resume = empty; /* from here on, what is in the folder is this run's */
    TW_TRY(worker_begin(w));
    return carry_pack(w, 0, &r->carry);
}

/* Its comm may go, and another worker come in its place. */
static void forget_worker(run *r)
{
    worker_release(&r->worker);
    r->worker = (worker){0};
}

/* Makes a worker on a comm of its own, acts as it, and forgets it. */
static tw_status act_alone(run *r, const task *work, tw_status (*act)(run *r))
{
    tw_comm *comm;
    TW_TRY(tw_comm_create_threads(1, &comm));
    tw_status status = worker_create(&r->settings, work, comm, &r->worker);
    if (status == TW_OK) status = act(r);
    forget_worker(r);
    tw_comm_destroy(comm);
    return status;
}

/* Of more members than the data have room for the last go. */
static tw_status check_room(const run *r, const task *work)
{
    learner_place place = {.size = r->group->place.size, .batch = (size_t)r->settings.batch};
    while (place.size > 1 && work->ops->fits(work, &place) != TW_OK) place.size--;
    if (place.size == r->group->place.size) return TW_OK;
    return tw_fail(r->group->place.rank >= place.size ? TW_ERROR_ARGUMENT : TW_ERROR_PEER,
                   "the training data are too few for a step of %d workers with --batch %ld each; they are enough for "
                   "%d",
                   r->group->place.size, r->settings.batch, place.size);
}

/* Rank 0 tells of the run and keeps it, until it goes; then another is rank 0. */
static tw_status tell_generation(run *r)
{
    worker *w = &r->worker;
    if (w->rank > 0) return TW_OK;
    if (!r->tells) {
        TW_TRY(keep_folder(r));
        TW_TRY(journal_open(&r->journal, w));
        r->tells = 1;
    }
    progress_say(&r->journal.progress, "%d worker%s from step %llu on", w->size, w->size > 1 ? "s" : "",
                 (unsigned long long)w->step);
    return TW_OK;
}

static tw_status enter(run *r, const tw_generation *place)
{
    worker *w = &r->worker;
    TW_TRY(carry_take(w, place, &r->carry));
    if (place->late && w->taken > 0 && !w->settings.quiet)
        fprintf(stderr,
                "thinwire: the group has gone on without this worker: what %llu steps since its last round came to is "
                "part of the next one\n",
                (unsigned long long)w->taken);
    w->unseen |= w->step == w->steps;
    r->saved_step = r->looked[TASK_VALIDATION] = r->looked[TASK_TEST] = NEVER;
    r->cut = 0;
    TW_TRY(worker_begin(w));
    r->begun = r->given = r->group->has_weights = 1;
    return TW_OK;
}

static tw_status tell_member(run *r)
{
    worker *w = &r->worker;
    const int least = r->group->least, most = r->group->most;
    totals sums;
    char sent[BYTES_TEXT], range[32] = "";
    TW_TRY(worker_totals(w, &sums));
    if (w->settings.quiet) return TW_OK;
    if (least < most) snprintf(range, sizeof range, "%d to ", least);
    fprintf(
        stderr,
        "thinwire: %llu round%s of the group, which had %s%d worker%s while this one was there; it sent %s; weights "
        "%08x\n",
        (unsigned long long)w->rounds, w->rounds == 1 ? "" : "s", range, most, most == 1 ? "" : "s",
        bytes_text(sums.values[TOTAL_BYTES_SENT], sent), w->judged ? w->last_checksum : worker_checksum(w));
    return TW_OK;
}

static tw_status live(run *r, run_result *result)
{
    TW_TRY(enter(r, &r->group->place));
    TW_TRY(tell_generation(r));
    TW_TRY(run_on(r, &result->interrupted));
    group_finish(r->group, r->worker.comm);
    return tell_member(r);
}

/* With what is needed to go on, where somebody came, left or was lost: TW_ERROR_PEER. */
static tw_status live_in(run *r, const task *work, tw_comm *comm, run_result *result)
{
    char text[512];
    r->begun = 0;
    tw_status status = check_room(r, work);
    if (status == TW_OK) status = worker_create(&r->settings, work, comm, &r->worker);
    if (status == TW_OK) status = live(r, result);
    snprintf(text, sizeof text, "%s", status == TW_OK ? "" : tw_last_error());
    result->diverged = r->worker.diverged;
    tw_status packed = status == TW_ERROR_PEER && r->begun ? carry_pack(&r->worker, r->cut, &r->carry) : TW_OK;
    forget_worker(r);
    tw_comm_destroy(comm);
    if (packed != TW_OK) return packed;
    return status == TW_OK ? TW_OK : tw_fail(status, "%s", text);
}

/* The group is no more, and what this worker has is not lost with it: its last steps count alone. */
static tw_status keep_rest(run *r)
{
    TW_TRY(enter(r, &(tw_generation){.size = 1}));
    return keep_alone(r);
}

static tw_status fall_alone(run *r, const task *work, tw_status status, run_result *result)
{
    char text[512];
    snprintf(text, sizeof text, "%s", tw_last_error());
    result->interrupted = interrupt_asked() && !r->group->was_in;
    if (result->interrupted) return TW_OK;
    if (r->group->was_in && !r->given)
        return tw_fail(status, "%s; this worker had nothing of the group's yet, and keeps nothing", text);
    if (!r->group->was_in || !r->settings.out) return tw_fail(status, "%s", text);
    TW_TRY(act_alone(r, work, keep_rest));
    return tw_fail(status, "%s; what this worker has is kept: thinwire train --resume %s goes on with it", text,
                   r->settings.out);
}

static void tell_left(const run *r)
{
    const char *kept = r->given ? r->settings.out : NULL;
    if (r->settings.quiet) return;
    fprintf(stderr, "thinwire: left the group after step %llu%s%s%s\n", (unsigned long long)r->carry.moment.step,
            kept ? "; thinwire train --resume " : "", kept ? kept : "", kept ? " goes on with what it had" : "");
}

static tw_status live_on(run *r, const task *work, run_result *result)
{
    for (;;) {
        tw_comm *comm;
        tw_status status = group_next(r->group, r->carry.rounds, r->leaves, &comm);
        if (status != TW_OK) return fall_alone(r, work, status, result);
        if (!comm) break;
        status = live_in(r, work, comm, result);
        if (status != TW_ERROR_PEER) return status;
    }
    /* Who waited when it was asked to leave has kept nothing yet. */
    if (!r->leaves && r->given && r->settings.out) TW_TRY(act_alone(r, work, keep_rest));
    result->interrupted = 1;
    tell_left(r);
    return TW_OK;
}

tw_status run_member(const train_settings *settings, const task *work, group *g, run_result *result)
{
    run r = {.group = g, .settings = *settings};
    *result = (run_result){0};
    TW_TRY(tw_comm_create_threads(1, &r.alone));
    r.given = g->has_weights;
    tw_status status = act_alone(&r, work, begin_alone);
    if (status == TW_OK) status = live_on(&r, work, result);
    journal_close(&r.journal);
    carry_release(&r.carry);
    tw_comm_destroy(r.alone);
    free(r.chosen_out);
    return status;
}
