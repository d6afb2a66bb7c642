#include "automatic.h"
#include "agree.h"
#include "error.h"
#include "exit.h"
#include "inquiry.h"
#include "interrupt.h"
#include "line.h"
#include <math.h>
#include <string.h>

#define EXACT "allreduce"
#define PATIENCE 3600 /* seconds that the others wait while rank 0 plans */
#define CHANGED 2     /* times as fast or as slow: another line */

static void automatic_tell(const train_settings *s, const tw_comm *comm, const char *text)
{
    if (!s->quiet && (!comm || tw_comm_rank(comm) == 0)) fprintf(stderr, "thinwire: %s\n", text);
}

static tw_status take_exact(train_settings *s, automatic *chosen, const tw_comm *comm, const char *why)
{
    snprintf(chosen->sync, sizeof chosen->sync, EXACT);
    s->sync = chosen->sync;
    automatic_tell(s, comm, why);
    return TW_OK;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

static tw_status automatic_plan(const train_settings *s, const task *work, int workers, const tw_world_options *world,
                                plan_inquiry *inquiry, automatic *chosen)
{
    tw_plan *plan = NULL;
    tw_status status = plan_ask(s, work, workers, inquiry);
    if (status == TW_OK) status = plan_answer(s, world, inquiry, &plan);
    plan_forget(inquiry);
    TW_TRY(status);
    snprintf(chosen->sync, sizeof chosen->sync, "%s", plan_chosen(plan).spec);
    snprintf(chosen->why, sizeof chosen->why, "--sync auto takes %s for a line of %s. %s", chosen->sync, chosen->link,
             tw_plan_why(plan));
    tw_plan_destroy(plan);
    return TW_OK;
}

static tw_status hear_choice(tw_comm *comm, automatic *chosen)
{
    TW_TRY(agree_text(comm, chosen->sync, sizeof chosen->sync));
    return agree_text(comm, chosen->link, sizeof chosen->link); /* who tells why is rank 0 */
}

/* Rank 0 chooses for all. */
static tw_status automatic_choose(train_settings *s, const task *work, int workers, tw_comm *comm,
                                  const tw_world_options *world, automatic *chosen)
{
    plan_inquiry inquiry = {0};
    int agreed = 0;
    tw_status status = TW_OK;
    TW_TRY(plan_find_pass(s, work, comm, &inquiry));
    network_link_text(world, chosen->link);
    if (!comm || tw_comm_rank(comm) == 0) status = automatic_plan(s, work, workers, world, &inquiry, chosen);
    if (comm) TW_TRY(agree_ranks(comm, status, &agreed));
    TW_TRY(status);
    if (comm) TW_TRY(hear_choice(comm, chosen));
    s->sync = chosen->sync;
    s->planned_link = chosen->link;
    automatic_tell(s, comm, chosen->why);
    return TW_OK;
}

/* ---- the line ---------------------------------------------------------------------------------------------------- */

static tw_status find_line(const train_settings *s, tw_comm *comm, tw_world_options *world)
{
    *world = (tw_world_options){0};
    if (s->link) return network_read_link(s->link, world);
    if (tw_comm_size(comm) > PLAN_RANKS)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--sync auto measures lines between %d ranks at most, and here are %d; say --link", PLAN_RANKS,
                       tw_comm_size(comm));
    return line_measure(comm, s->timeout, world);
}

static int has_changed(double now, double then)
{
    return now > CHANGED * then || then > CHANGED * now;
}

static tw_status compare_line(const train_settings *s, tw_comm *comm)
{
    tw_world_options now, then = {0};
    char text[NETWORK_TEXT], why[512];
    if (!s->link && tw_comm_size(comm) > PLAN_RANKS) return TW_OK;
    TW_TRY(network_read_link(s->planned_link, &then));
    TW_TRY(find_line(s, comm, &now));
    if (!has_changed(now.bandwidth, then.bandwidth) && !has_changed(now.bandwidth_down, then.bandwidth_down))
        return TW_OK;
    snprintf(why, sizeof why,
             "the line is %s now, and --sync auto chose %s for %s. The run keeps it; thinwire plan says what suits the "
             "line today",
             network_link_text(&now, text), s->sync, s->planned_link);
    automatic_tell(s, comm, why);
    return TW_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static tw_status settle_among(train_settings *s, const task *work, tw_comm *comm, automatic *chosen)
{
    tw_world_options world;
    TW_TRY(find_line(s, comm, &world));
    TW_TRY(tw_comm_set_timeout(comm, fmax(PATIENCE, s->timeout)));
    TW_TRY(tw_comm_set_patience(comm, fmax(PATIENCE, s->patience)));
    TW_TRY(automatic_choose(s, work, tw_comm_size(comm), comm, &world, chosen));
    TW_TRY(tw_comm_set_timeout(comm, s->timeout));
    return tw_comm_set_patience(comm, s->patience);
}

static tw_status settle_threads(train_settings *s, const task *work, automatic *chosen)
{
    tw_world_options world;
    if (!s->link)
        return take_exact(s, chosen, NULL,
                          "--sync auto takes " EXACT ", as the workers are threads of this process and have no line "
                          "between them. --link plans for one");
    TW_TRY(find_line(s, NULL, &world));
    return automatic_choose(s, work, (int)s->workers, NULL, &world, chosen);
}

/* Before a line is measured, and a step timed. */
static tw_status check_count(int workers)
{
    if (workers <= TW_PLAN_WORKERS_MOST) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--sync auto plans for %d workers at most, and here are %d: say --sync SCHEME; thinwire plan "
                   "--workers %d --link RATE,LATENCY finds one for a line",
                   TW_PLAN_WORKERS_MOST, workers, TW_PLAN_WORKERS_MOST);
}

static tw_status settle(train_settings *s, const task *work, tw_comm *comm, automatic *chosen)
{
    int workers = comm ? tw_comm_size(comm) : (int)s->workers, alone = workers < 2;
    if (strcmp(s->sync, SYNC_AUTO) != 0)
        return s->resume && s->planned_link && comm && !alone ? compare_line(s, comm) : TW_OK;
    if (alone) return take_exact(s, chosen, comm, "--sync auto takes " EXACT ", as a worker alone exchanges nothing");
    if (comm || s->link) TW_TRY(check_count(workers));
    return comm ? settle_among(s, work, comm, chosen) : settle_threads(s, work, chosen);
}

/* That may take minutes, and there is nothing to save meanwhile. */
tw_status automatic_settle(train_settings *s, const task *work, tw_comm *comm, automatic *chosen)
{
    interrupt_ends_with(EXIT_INTERRUPTED);
    tw_status status = settle(s, work, comm, chosen);
    interrupt_ends_with(0);
    return status;
}
