/* What `thinwire simulate` is told in words: the network, lists of workers and schemes. */
#include "error.h"
#include "network.h"
#include "pipeline_plan.h"
#include "scheme.h"
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

tw_status simulate_read_network(const simulate_settings *s, tw_world_options *world)
{
    TW_TRY(network_read_link(s->link, world));
    if (!network_read_time(s->overhead, &world->overhead))
        return tw_fail(TW_ERROR_ARGUMENT, "--overhead %s: want a time, such as 20us (us, ms, s), of at most 1e6s",
                       s->overhead);
    TW_TRY(sim_check_codec_rate(s->codec_rate));
    world->workers_per_host = (int)s->workers_per_host;
    return TW_OK;
}

static size_t count_entries(const char *list, char separator)
{
    size_t count = 1;
    for (; *list; list++) count += *list == separator;
    return count;
}

static tw_status read_workers(const char *list, int *counts)
{
    for (const char *at = list;; at++) {
        char *end;
        long count = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || count < 1 || count > WORKERS_MOST)
            return tw_fail(TW_ERROR_ARGUMENT, "--workers %s: want numbers from 1 to %d, such as 16,64,1024", list,
                           WORKERS_MOST);
        *counts++ = (int)count;
        at = end;
        if (!*at) return TW_OK;
    }
}

static tw_status check_slowdowns(const simulate_settings *s, const simulation *all)
{
    slowdown unused;
    for (size_t i = 0; i < all->row_count; i++)
        TW_TRY(slowdown_parse(s->train.slow, s->train.pause, 0, all->rows[i].workers, UINT32_MAX, &unused));
    return TW_OK;
}

static void add_row(simulation *all, const char *sync, int workers, size_t micro_batches)
{
    all->rows[all->row_count++] = (simulate_row){.sync = sync, .workers = workers, .micro_batches = (int)micro_batches};
}

static tw_status add_schemes(char *syncs, const int *counts, size_t workers, simulation *all)
{
    for (char *sync = strtok(syncs, ";"); sync; sync = strtok(NULL, ";")) {
        sync += strspn(sync, " ");
        TW_TRY(scheme_check(sync));
        for (size_t i = 0; i < workers; i++) add_row(all, sync, counts[i], 0);
    }
    return all->row_count > 0 ? TW_OK
                              : tw_fail(TW_ERROR_ARGUMENT, "--sync names no scheme; thinwire schemes lists them");
}

/* In virtual time layers cannot be measured, so the cut is said. */
static tw_status add_pipelines(char *pipelines, simulation *all)
{
    const size_t before = all->row_count;
    for (char *text = strtok(pipelines, ";"); text; text = strtok(NULL, ";")) {
        pipeline_plan plan = {0};
        text += strspn(text, " ");
        TW_TRY(pipeline_plan_parse(text, &plan));
        if (plan.cut == 0)
            return tw_fail(TW_ERROR_ARGUMENT,
                           "--pipeline %s: a simulation does not measure layers; want cut=A+B+..., how many each stage "
                           "has, as config.yaml of a run says it",
                           text);
        if (plan.standby > 0)
            return tw_fail(TW_ERROR_ARGUMENT,
                           "--pipeline %s: nobody is lost in a simulation, so nobody stands by; leave out standby=%zu",
                           text, plan.standby);
        add_row(all, text, (int)plan.stages, plan.accumulate);
    }
    if (all->row_count > before) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "--pipeline names no stages: want stages=P,cut=A+B+...");
}

static tw_status check_loss(const simulate_settings *s)
{
    if (!s->gradients_off || s->until_loss == 0) return TW_OK;
    return tw_fail(
        TW_ERROR_ARGUMENT,
        "--until-loss %g: gradients of no model have no loss; leave it out, or name a task, with --gradients on",
        s->until_loss);
}

static tw_status check_pipelines(const simulate_settings *s)
{
    if (!s->pipelines || (!s->gradients_off && s->until_loss == 0)) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "--pipeline does not go with %s: leave out one of them",
                   s->gradients_off ? "gradients of no model" : "--until-loss");
}

tw_status simulate_make_rows(simulate_settings *s, simulation *all)
{
    const int alone = s->pipelines && !options_given(s->train.set, "sync");
    size_t workers = count_entries(s->workers, ','), syncs = count_entries(s->syncs, ';');
    size_t pipelines = s->pipelines ? count_entries(s->pipelines, ';') : 0;
    int *counts = calloc(workers, sizeof *counts);
    all->rows = calloc(workers * syncs + pipelines, sizeof *all->rows);
    tw_status status = counts && all->rows
                           ? check_pipelines(s)
                           : tw_fail(TW_ERROR_MEMORY, "no memory for %zu runs", workers * syncs + pipelines);
    if (status == TW_OK) status = check_loss(s);
    if (status == TW_OK) status = read_workers(s->workers, counts);
    if (status == TW_OK && !alone) status = add_schemes(s->syncs, counts, workers, all);
    if (status == TW_OK && s->pipelines) status = add_pipelines(s->pipelines, all);
    free(counts);
    return status == TW_OK ? check_slowdowns(s, all) : status;
}
