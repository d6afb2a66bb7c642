#include "collapse_guard.h"

#include "error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The fewest codes that may live, and the largest share of distractors that may be left out. */
#define LEAST_CODES(codes) fmax(2.0, (double)(codes) / 25.0)
#define MOST_SAME 0.35

enum { DISTRACTORS, SAME, HIDDEN, BESIDE }; /* behind the codes */

tw_status collapse_guard_create(size_t groups, size_t codes, collapse_guard *g)
{
    *g = (collapse_guard){.groups = groups, .codes = codes};
    g->counts = calloc(collapse_guard_count(g), sizeof *g->counts);
    return g->counts ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory to count %zu codes", groups * codes);
}

void collapse_guard_release(collapse_guard *g)
{
    free(g->counts);
    *g = (collapse_guard){0};
}

size_t collapse_guard_count(const collapse_guard *g)
{
    return g->groups * g->codes + BESIDE;
}

void collapse_guard_add(collapse_guard *g, const w2v_bert_result *result)
{
    size_t all = g->groups * g->codes;
    double *beside = g->counts + all;
    for (size_t v = 0; v < all; v++) g->counts[v] += result->chosen[v];
    beside[DISTRACTORS] += result->sums.distractors;
    beside[SAME] += result->sums.same;
    beside[HIDDEN] += result->sums.hidden;
}

void collapse_guard_clear(collapse_guard *g)
{
    memset(g->counts, 0, collapse_guard_count(g) * sizeof *g->counts);
}

bool collapse_guard_is_due(uint64_t step, uint64_t warmup)
{
    return step % COLLAPSE_WINDOW == 0 && step >= warmup + COLLAPSE_GRACE;
}

/* exp of the entropy: of k codes that are used alike, k. */
static double collapse_guard_perplexity(const float *counts, size_t codes)
{
    double total = 0, entropy = 0;
    for (size_t v = 0; v < codes; v++) total += (double)counts[v];
    for (size_t v = 0; v < codes; v++)
        if (counts[v] > 0) entropy -= (double)counts[v] / total * log((double)counts[v] / total);
    return exp(entropy);
}

tw_status collapse_guard_judge(const collapse_guard *g, const float *counts, uint64_t step)
{
    const float *beside = counts + g->groups * g->codes;
    double least = INFINITY, same = beside[DISTRACTORS] > 0 ? (double)(beside[SAME] / beside[DISTRACTORS]) : 0;
    if (!(beside[HIDDEN] > 0)) return TW_OK;
    for (size_t i = 0; i < g->groups; i++)
        least = fmin(least, collapse_guard_perplexity(counts + i * g->codes, g->codes));
    if (least >= LEAST_CODES(g->codes) && same <= MOST_SAME) return TW_OK;
    return tw_fail(
        TW_ERROR_NONFINITE,
        "the codes have collapsed: in the %d steps before step %llu, %.1f of %zu were in use (perplexity; "
        "%.3g is the least that is healthy), and %.0f %% of the distractors had the code that was asked for "
        "(at most %.0f %% is healthy); a smaller --code-scale, a lower --temperature or a larger --diversity "
        "may help, and --on-collapse go looks on",
        COLLAPSE_WINDOW, (unsigned long long)step, least, g->codes, LEAST_CODES(g->codes), 100 * same, 100 * MOST_SAME);
}
