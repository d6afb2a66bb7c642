#include "replan.h"
#include "agree.h"
#include "error.h"
#include "exchange.h"
#include "journal.h"
#include "line.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXACT "allreduce"
#define LITTLE 0.05   /* of a pass: whoever exchanges for so long has nothing to gain */
#define CHANGED 2     /* times as slow or as fast, and what is over before the rest is has not changed */
#define PATIENCE 3600 /* seconds that the others wait while rank 0 plans */
enum {
    STEPS = 32, /* whose middle one counts; */
    ROUNDS = 8, /* of local updates */
    REST = 64   /* steps after the first plan, then twice as many */
};

/* ---- watching ---------------------------------------------------------------------------------------------------- */

/* What the way has sent and waited since it was created. */
static tw_status look(const worker *w, double *bytes, double *seconds)
{
    totals sums = {{0}};
    TW_TRY(w->exchange->add_totals(w, &sums));
    *bytes = sums.values[TOTAL_BYTES_SENT];
    *seconds = sums.values[TOTAL_SECONDS_EXCHANGE];
    return TW_OK;
}

static tw_status watch_way(replan *r, const worker *w)
{
    tw_watch_destroy(r->watch);
    r->watch = NULL;
    r->times = 1;
    TW_TRY(look(w, &r->bytes, &r->seconds));
    return tw_watch_create(w->exchange->side_by_side ? ROUNDS : STEPS, &r->watch);
}

static int is_watched(const worker *w)
{
    const train_settings *s = &w->settings;
    return s->planned_link && !s->resume && w->size > 1 && !w->pager &&
           strcmp(tw_comm_transport(w->comm), "threads") != 0 && tw_plan_can_switch(w->sync) == TW_OK;
}

static tw_status choose_by_plan(worker *w, const tw_world_options *line, replan_choice *choice)
{
    plan_inquiry inquiry = {0};
    tw_plan *plan;
    plan_ask_of_run(w, &inquiry);
    TW_TRY(plan_answer(&w->settings, line, &inquiry, &plan));
    snprintf(choice->sync, sizeof choice->sync, "%s", plan_chosen(plan).spec);
    snprintf(choice->why, sizeof choice->why, "%s", tw_plan_why(plan));
    tw_plan_destroy(plan);
    return TW_OK;
}

tw_status replan_begin(replan *r, const worker *w)
{
    *r = (replan){.choose = choose_by_plan};
    if (!is_watched(w)) return TW_OK;
    TW_TRY(network_read_link(w->settings.planned_link, &r->line));
    return watch_way(r, w);
}

void replan_end(replan *r)
{
    tw_watch_destroy(r->watch);
    r->watch = NULL;
}

/* *middle: seconds of an exchange of this rank. */
static tw_status hear(replan *r, worker *w, double *middle)
{
    double before[] = {r->bytes, r->seconds}, own[2];
    TW_TRY(look(w, &r->bytes, &r->seconds));
    if (!tw_watch_add(r->watch, r->bytes - before[0], r->seconds - before[1], own)) return TW_OK;
    double *all = calloc((size_t)w->size, sizeof own);
    if (!all) return tw_fail(TW_ERROR_MEMORY, "no memory to hear %d workers", w->size);
    tw_status status = tw_comm_allgather(w->comm, own, sizeof own, all);
    if (status == TW_OK) r->times *= tw_watch_judge(r->watch, all, w->size);
    free(all);
    *middle = own[1];
    return status;
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

/* Where all is sent, and hides behind the passes or nearly so, nothing is faster. */
static int has_nothing_to_gain(const worker *w, double waited)
{
    const double pass = w->now.values[TOTAL_SECONDS_PASS] / fmax(1, (double)w->step);
    return strcmp(w->sync, EXACT) == 0 && waited < LITTLE * pass;
}

static tw_status choose_for_all(replan *r, worker *w, double waited, replan_choice *choice)
{
    tw_status status = TW_OK;
    const train_settings *s = &w->settings;
    snprintf(choice->sync, sizeof choice->sync, "%s", w->sync);
    TW_TRY(tw_comm_set_timeout(w->comm, fmax(PATIENCE, s->timeout)));
    TW_TRY(tw_comm_set_patience(w->comm, fmax(PATIENCE, s->patience)));
    if (w->rank == 0 && !has_nothing_to_gain(w, waited)) status = r->choose(w, &r->line, choice);
    TW_TRY(agree_status(w, status));
    TW_TRY(agree_text(w->comm, choice->sync, sizeof choice->sync)); /* who tells why is rank 0 */
    TW_TRY(tw_comm_set_timeout(w->comm, s->timeout));
    return tw_comm_set_patience(w->comm, s->patience);
}

static void tell_choice(const worker *w, const char *before, const char *link, const replan_choice *choice)
{
    if (w->settings.quiet || w->rank > 0 || !*choice->why) return;
    const int stays = strcmp(choice->sync, w->sync) == 0;
    fprintf(stderr, "thinwire: step %llu: the line is %s now, and was %s. --sync auto %s %s%s%s. %s\n",
            (unsigned long long)w->step, link, before, stays ? "keeps" : "goes on with", choice->sync,
            stays ? "" : " in place of ", stays ? "" : w->sync, choice->why);
}

/* ---- going on by it ---------------------------------------------------------------------------------------------- */

static int write_changes(replan *r, worker *w)
{
    w->settings.planned_link = r->link;
    return worker_keep_changes(w) == TW_OK && journal_reconfigure(w) == TW_OK;
}

/* *written: on all ranks that have a disk of their own. Where one cannot, none keeps it. */
static tw_status write_down(replan *r, worker *w, const replan_choice *choice, int *written)
{
    const size_t before = w->changes.count;
    int failed = !changes_add(&w->changes, w->step, choice->sync) || !write_changes(r, w);
    TW_TRY(agree_any(w->comm, &failed));
    *written = !failed;
    if (!failed) return TW_OK;
    w->changes.count = before;
    (void)write_changes(r, w);
    return TW_OK;
}

static tw_status go_on_by(replan *r, worker *w, const char *sync)
{
    TW_TRY(worker_switch(w, sync));
    return r->watch ? watch_way(r, w) : TW_OK;
}

/* Without a record no run could repeat it. */
static tw_status take_choice(replan *r, worker *w, const replan_choice *choice)
{
    int written;
    if (strcmp(choice->sync, w->sync) == 0) return TW_OK;
    TW_TRY(write_down(r, w, choice, &written));
    if (written) return go_on_by(r, w, w->changes.all[w->changes.count - 1].spec);
    replan_end(r);
    if (w->rank == 0)
        fprintf(stderr, "thinwire: warning: the change cannot be written into config.yaml, so the run keeps %s\n",
                w->sync);
    return TW_OK;
}

static int is_another(const replan *r)
{
    return r->times >= CHANGED || r->times * CHANGED <= 1;
}

static tw_status plan_anew(replan *r, worker *w, double waited)
{
    char before[NETWORK_TEXT];
    replan_choice choice = {{0}, {0}};
    network_link_text(&r->line, before);
    r->line.bandwidth /= r->times;
    r->line.bandwidth_down /= r->times;
    r->times = 1;
    network_link_text(&r->line, r->link);
    TW_TRY(choose_for_all(r, w, waited, &choice));
    r->not_before = w->step + ((uint64_t)REST << r->plans);
    if (r->plans < 16) r->plans++;
    tell_choice(w, before, r->link, &choice);
    return take_choice(r, w, &choice);
}

tw_status replan_before_step(replan *r, worker *w)
{
    double waited = -1; /* no window is over */
    const char *written = changes_before(&w->changes, w->settings.sync, w->step + 1);
    if (strcmp(written, w->sync) != 0) return go_on_by(r, w, written);
    if (!r->watch) return TW_OK;
    TW_TRY(hear(r, w, &waited));
    return waited < 0 || w->step < r->not_before || !is_another(r) ? TW_OK : plan_anew(r, w, waited);
}
