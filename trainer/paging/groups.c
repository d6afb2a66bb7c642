#include "groups.h"
#include "pages.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* A piece is such a share of the budget, and at most so many bytes. */
enum { PIECES = 256, LARGEST_PIECE = 1 << 20 };

size_t groups_piece(size_t budget)
{
    size_t bytes = pages_down(budget / PIECES);
    if (bytes > LARGEST_PIECE) bytes = LARGEST_PIECE;
    return bytes ? bytes : pages_up(1);
}

const char *groups_bytes_text(size_t bytes, char text[32])
{
    snprintf(text, 32, "%.1fMB", ceil((double)bytes / 1e5) / 10);
    return text;
}

/* ---- units ---- */

/* Those that come and go are from `first` to before `end`; units are joined from them, counts[i] to the i-th. */
typedef struct moving {
    size_t first, end, count;
    partition_unit *units;
    size_t *counts;
} moving;

static size_t unit_begin(const groups_problem *p, size_t unit)
{
    return unit ? p->units[unit - 1].end : 0;
}

/* Seconds, or before they are known, bytes: the way back computes twice as much as the way forward. */
static partition_unit measure_unit(const groups_problem *p, size_t u)
{
    const size_t bytes = (p->units[u].end - unit_begin(p, u)) * sizeof(float);
    const double steps = p->times->steps;
    if (steps == 0) return (partition_unit){bytes, (double)bytes, 2.0 * (double)bytes};
    return (partition_unit){bytes, p->times->units[u].forward / steps, p->times->units[u].backward / steps};
}

static tw_status find_moving(const groups_problem *p, moving *m)
{
    for (m->first = 0; m->first < p->count && p->units[m->first].stays; m->first++) continue;
    for (m->end = p->count; m->end > m->first && p->units[m->end - 1].stays; m->end--) continue;
    m->count = m->end - m->first;
    m->units = calloc(m->count + 1, sizeof *m->units);
    m->counts = calloc(m->count + 1, sizeof *m->counts);
    if (!m->units || !m->counts) return tw_fail(TW_ERROR_MEMORY, "--memory-budget: no memory for %zu layers", m->count);
    for (size_t i = 0; i < m->count; i++) {
        m->units[i] = measure_unit(p, m->first + i);
        m->counts[i] = 1;
    }
    return TW_OK;
}

/* What stays computes, too. */
static double seconds_staying(const groups_problem *p, const moving *m)
{
    double seconds = 0;
    for (size_t u = 0; u < p->count && p->times->steps > 0; u++)
        if (u < m->first || u >= m->end)
            seconds += (p->times->units[u].forward + p->times->units[u].backward) / p->times->steps;
    return seconds;
}

/* ---- choosing ---- */

/* Bytes that are always in memory: a page at each end of each group belongs to its neighbour, too. */
static size_t kept_bytes(const groups_problem *p, const moving *m)
{
    const size_t moves = p->units[m->end - 1].end - unit_begin(p, m->first), all = p->units[p->count - 1].end;
    return 2 * (all - moves) * sizeof(float) + (p->arrays - 1) * groups_piece(p->budget) +
           (m->count + 1) * p->arrays * pages_up(1);
}

static double per_byte(group_pace moved)
{
    return moved.bytes > 0 ? moved.seconds / moved.bytes : 0;
}

/* *least: the smallest budget with which it can be done. */
static void find_with(const groups_problem *p, const moving *m, groups_found *found, size_t *least)
{
    const size_t kept = kept_bytes(p, m);
    const partition_problem problem = {m->units,
                                       m->count,
                                       p->budget > kept ? p->budget - kept : 0,
                                       per_byte(p->times->load),
                                       per_byte(p->times->load_back),
                                       per_byte(p->times->store)};
    *least = partition_least(&problem) + kept;
    found->count = partition_find(&problem, found->ends);
    found->seconds = partition_seconds(&problem, found->ends, found->count);
    for (size_t g = 0, i = 0, u = m->first; g < found->count; g++) { /* from joined units to elements */
        for (; i < found->ends[g]; i++) u += m->counts[i];
        found->ends[g] = unit_begin(p, u);
    }
}

static tw_status refuse(const groups_problem *p, size_t least)
{
    char total[32], enough[32];
    const double megabytes = (double)p->budget / 1e6;
    least = (least + p->arrays * pages_up(1)) * PIECES / (PIECES - p->arrays); /* its pieces are larger */
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--memory-budget %g%s is too small: the model and its state take %s, and its largest layers must "
                   "be in memory at a time; write --memory-budget %s or more",
                   megabytes < 1 ? megabytes * 1e3 : megabytes, megabytes < 1 ? "kB" : "MB",
                   groups_bytes_text(p->arrays * p->units[p->count - 1].end * sizeof(float), total),
                   groups_bytes_text(least, enough));
}

/* The fastest of several finenesses: small groups cost a page or two each, which counts where the budget is small. */
static tw_status find_best(const groups_problem *p, moving *m, groups_found *best)
{
    static const size_t finenesses[] = {PARTITION_MOST, 28, 20, 14, 10, 7, 5, 3, 2, 1};
    size_t least = SIZE_MAX, need;
    for (size_t i = 0; i < sizeof finenesses / sizeof *finenesses; i++) {
        groups_found found;
        m->count = partition_join(m->units, m->counts, m->count, finenesses[i]);
        find_with(p, m, &found, &need);
        if (need < least) least = need;
        if (found.count && (!best->count || found.seconds < best->seconds)) *best = found;
    }
    if (!best->count) return refuse(p, least);
    best->begin = unit_begin(p, m->first);
    best->seconds += seconds_staying(p, m);
    return TW_OK;
}

tw_status groups_find(const groups_problem *problem, groups_found *found)
{
    moving m = {0};
    *found = (groups_found){0};
    tw_status status = find_moving(problem, &m);
    if (status == TW_OK) status = find_best(problem, &m, found);
    free(m.units);
    free(m.counts);
    return status;
}
