#include "sampling.h"

#include <math.h>
#include <stdlib.h>

#include "error.h"

typedef struct candidate {
    float score;
    uint32_t token;
} candidate;

static int best_first(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->score != b->score) return a->score < b->score ? 1 : -1;
    return a->token < b->token ? -1 : 1;
}

/* A number in 0 .. 1, below 1. */
static double sampling_uniform(uint64_t seed, uint64_t draw)
{
    uint32_t words[4];
    tw_random(seed, 0, draw, words);
    return (double)(((uint64_t)words[0] << 21) ^ (words[1] >> 11)) * 0x1p-53;
}

static uint32_t draw_from(const sampling *s, const candidate *candidates, size_t count, uint64_t draw)
{
    double best = candidates[0].score, sum = 0, reached = 0;
    if (s->temperature == 0) return candidates[0].token;
    for (size_t i = 0; i < count; i++) sum += exp((candidates[i].score - best) / s->temperature);
    double target = sampling_uniform(s->seed, draw) * sum;
    for (size_t i = 0; i + 1 < count; i++) {
        reached += exp((candidates[i].score - best) / s->temperature);
        if (target < reached) return candidates[i].token;
    }
    return candidates[count - 1].token;
}

tw_status sample_token(const sampling *s, const float *scores, size_t count, uint64_t draw, uint32_t *token)
{
    candidate *candidates = malloc(count * sizeof *candidates);
    if (!candidates) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu candidates", count);
    int finite = 1;
    for (uint32_t i = 0; i < count; i++) {
        candidates[i] = (candidate){scores[i], i};
        finite = finite && isfinite(scores[i]);
    }
    if (finite) {
        qsort(candidates, count, sizeof *candidates, best_first);
        *token = draw_from(s, candidates, s->top_k && s->top_k < count ? s->top_k : count, draw);
    }
    free(candidates);
    return finite ? TW_OK : tw_fail(TW_ERROR_NONFINITE, "the model's scores are NaN or infinite: it has diverged");
}
