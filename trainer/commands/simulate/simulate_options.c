/* What `thinwire simulate` is told in words: links, times, lists of workers and schemes. */
#include "error.h"
#include "scheme.h"
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

typedef struct unit {
    const char *name;
    double value;
} unit;

#define SECONDS_MOST 1e6      /* of whatever takes time */
#define CODEC_RATE_LEAST 1e-6 /* GB/s: a kilobyte a second */

static const unit rates[] = {{"bit", 1}, {"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}};
static const unit times[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

/* A number with one of the units, up to `end`. */
static int read_measure(const char *text, size_t length, const unit *units, size_t count, double *value)
{
    char *rest;
    double number = strtod(text, &rest);
    size_t left = length - (size_t)(rest - text);
    if (rest == text || !(number >= 0 && number <= 1e12)) return 0;
    for (size_t i = 0; i < count; i++)
        if (strlen(units[i].name) == left && memcmp(units[i].name, rest, left) == 0) {
            *value = number * units[i].value;
            return 1;
        }
    return 0;
}

static int read_time(const char *text, double *seconds)
{
    return read_measure(text, strlen(text), times, sizeof times / sizeof *times, seconds) && *seconds <= SECONDS_MOST;
}

static int read_rate(const char *text, size_t length, double *bytes)
{
    double bits;
    if (!read_measure(text, length, rates, sizeof rates / sizeof *rates, &bits) || bits < 1) return 0;
    *bytes = bits / 8;
    return 1;
}

/* "1Gbit,0.1ms", or with another rate towards the host, "10Mbit/100Mbit,80ms". */
static int read_link(const char *link, tw_world_options *world)
{
    size_t rate = strcspn(link, ",/"), both = strcspn(link, ",");
    if (!link[both] || !read_rate(link, rate, &world->bandwidth)) return 0;
    world->bandwidth_down = world->bandwidth;
    if (rate < both && !read_rate(link + rate + 1, both - rate - 1, &world->bandwidth_down)) return 0;
    return read_time(link + both + 1, &world->latency);
}

tw_status simulate_read_network(const simulate_settings *s, tw_world_options *world)
{
    if (!read_link(s->link, world))
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "--link %s: want RATE,LATENCY, such as 1Gbit,0.1ms, or UP/DOWN,LATENCY, such as 10Mbit/100Mbit,80ms (bit, "
            "kbit, Mbit, Gbit; us, ms, s), of 1bit or more and at most 1e6s",
            s->link);
    if (!read_time(s->overhead, &world->overhead))
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
