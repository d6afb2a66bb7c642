/* What `thinwire simulate` is told in words: the network, lists of workers and schemes. */
#include "error.h"
#include "network.h"
#include "scheme.h"
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

#define CODEC_RATE_LEAST 1e-6 /* GB/s: a kilobyte a second */

tw_status simulate_read_network(const simulate_settings *s, tw_world_options *world)
{
    TW_TRY(network_read_link(s->link, world));
    if (!network_read_time(s->overhead, &world->overhead))
        return tw_fail(TW_ERROR_ARGUMENT, "--overhead %s: want a time, such as 20us (us, ms, s), of at most 1e6s",
                       s->overhead);
    if (s->codec_rate > 0 && s->codec_rate < CODEC_RATE_LEAST)
        return tw_fail(TW_ERROR_ARGUMENT, "--codec-rate %g: want 0, or %g and more", s->codec_rate, CODEC_RATE_LEAST);
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

tw_status simulate_make_rows(simulate_settings *s, simulation *all)
{
    size_t workers = count_entries(s->workers, ','), syncs = count_entries(s->syncs, ';');
    int *counts = calloc(workers, sizeof *counts);
    all->rows = calloc(workers * syncs, sizeof *all->rows);
    if (!counts || !all->rows) {
        free(counts);
        return tw_fail(TW_ERROR_MEMORY, "no memory for %zu runs", workers * syncs);
    }
    tw_status status = read_workers(s->workers, counts);
    for (char *sync = strtok(s->syncs, ";"); sync && status == TW_OK; sync = strtok(NULL, ";")) {
        sync += strspn(sync, " ");
        status = scheme_check(sync);
        for (size_t i = 0; i < workers; i++)
            all->rows[all->row_count++] = (simulate_row){.sync = sync, .workers = counts[i]};
    }
    free(counts);
    if (status == TW_OK && all->row_count == 0)
        status = tw_fail(TW_ERROR_ARGUMENT, "--sync names no scheme; thinwire schemes lists them");
    return status == TW_OK ? check_slowdowns(s, all) : status;
}
