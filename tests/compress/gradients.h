/* gradients.h - every rank's gradients of a table of tensors, and a look at what a scheme remembers of one. */
#ifndef GRADIENTS_H
#define GRADIENTS_H

#include "compress.h"
#include "loopback.h"
#include "scheme.h"
#include "support/cmocka.h"

#include <math.h>
#include <thinwire/thinwire_plugin.h>

typedef struct gradients {
    const tw_tensor *table;
    size_t tensors;
    int ranks;
    float **rank[LOOPBACK_RANKS]; /* one array a tensor */
} gradients;

static inline void gradients_create(gradients *g, const tw_tensor *table, size_t tensors, int ranks)
{
    *g = (gradients){.table = table, .tensors = tensors, .ranks = ranks};
    for (int r = 0; r < ranks; r++) {
        g->rank[r] = calloc(tensors, sizeof **g->rank);
        for (size_t t = 0; t < tensors; t++) g->rank[r][t] = calloc(tw_tensor_count(&table[t]), sizeof(float));
    }
}

static inline void gradients_destroy(gradients *g)
{
    for (int r = 0; r < g->ranks; r++) {
        for (size_t t = 0; t < g->tensors; t++) free(g->rank[r][t]);
        free(g->rank[r]);
    }
}

/* Roughly normal, heavier in some rows: another draw for every seed, step, rank, tensor and element. */
static inline float gradient_draw(uint64_t seed, int step, int rank, size_t tensor, size_t i)
{
    uint32_t words[4];
    double sum = 0;
    tw_random(seed, (uint64_t)(step * 64 + rank), tensor << 32 | i, words);
    for (int w = 0; w < 4; w++) sum += words[w] / 4294967296.0 - 0.5;
    return (float)(sum * (1 + (double)(i % 7)));
}

/* Fills all; with a grid > 0, multiples of it, so that floats add them exactly. */
static inline void gradients_draw(gradients *g, uint64_t seed, int step, double grid)
{
    for (int r = 0; r < g->ranks; r++)
        for (size_t t = 0; t < g->tensors; t++)
            for (size_t i = 0; i < tw_tensor_count(&g->table[t]); i++) {
                double x = (double)gradient_draw(seed, step, r, t, i);
                g->rank[r][t][i] = (float)(grid > 0 ? (double)(long)(x / grid) * grid : x);
            }
}

/* 1 if all ranks hold the same bits. */
static inline int gradients_agree(const gradients *g)
{
    for (int r = 1; r < g->ranks; r++)
        for (size_t t = 0; t < g->tensors; t++)
            if (memcmp(g->rank[0][t], g->rank[r][t], tw_tensor_count(&g->table[t]) * sizeof(float))) return 0;
    return 1;
}

static inline double gradients_norm(const gradients *g, int rank)
{
    double sum = 0;
    for (size_t t = 0; t < g->tensors; t++)
        for (size_t i = 0; i < tw_tensor_count(&g->table[t]); i++)
            sum += (double)g->rank[rank][t][i] * (double)g->rank[rank][t][i];
    return sqrt(sum);
}

static inline int larger_first(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x > y ? -1 : x < y;
}

/* |x|, the largest first; to be freed. */
static inline float *sorted_magnitudes(const float *x, size_t n)
{
    float *sorted = malloc(n * sizeof *sorted);
    for (size_t i = 0; i < n; i++) sorted[i] = fabsf(x[i]);
    qsort(sorted, n, sizeof *sorted, larger_first);
    return sorted;
}

/* What a scheme remembers of one kind for one tensor, found by a walk. */
typedef struct finder {
    tw_walk walk;
    const char *kind, *tensor;
    void *data; /* NULL if there is no such thing */
    size_t bytes;
} finder;

static inline tw_status finder_visit(tw_walk *walk, const tw_remembered *entry)
{
    finder *self = (finder *)walk;
    if (strcmp(entry->what, self->kind) || strcmp(entry->tensor, self->tensor)) return TW_OK;
    self->data = entry->data;
    self->bytes = entry->count * (entry->dtype == TW_F64 || entry->dtype == TW_U64 ? 8 : 4);
    return TW_OK;
}

static inline finder find(tw_scheme *scheme, const char *kind, const char *tensor)
{
    finder self = {{finder_visit, NULL}, kind, tensor, NULL, 0};
    assert_int_equal(tw_scheme_walk(scheme, &self.walk), TW_OK);
    return self;
}

/* Copies it; 0 if there is no such thing. */
static inline int remembered(tw_scheme *scheme, const char *kind, const char *tensor, void *dst)
{
    finder found = find(scheme, kind, tensor);
    if (found.data) memcpy(dst, found.data, found.bytes);
    return found.data != NULL;
}

/* What the last step cost. */
static inline tw_cost cost_of(const tw_scheme *scheme)
{
    tw_cost cost = {.struct_size = sizeof cost};
    assert_int_equal(tw_scheme_cost(scheme, &cost), TW_OK);
    return cost;
}

/* ---- the pieces of a tensor "w" that ranks add up ---------------------------------------------------------------- */

typedef struct piece {
    size_t first, count; /* no element, where there are fewer pieces than ranks */
    int owner;
} piece;

static inline piece piece_of(size_t n, int ranks, int owner)
{
    size_t size = (size_t)ranks, pieces = n < 2048 ? 1 : n / 1024 < size ? n / 1024 : size;
    size_t j = ((size_t)owner + size - tw_crc32c(0, "w", 1) % size) % size;
    if (j >= pieces) return (piece){0, 0, owner};
    size_t first = n * j / pieces / 64 * 64;
    return (piece){first, (j + 1 == pieces ? n : n * (j + 1) / pieces / 64 * 64) - first, owner};
}

/* ---- a group and its gradients ----------------------------------------------------------------------------------- */

static inline void group_create(loopback *group, gradients *g, const char *spec, const tw_tensor *table, size_t tensors,
                                int ranks)
{
    gradients_create(g, table, tensors, ranks);
    if (loopback_create(group, spec, table, tensors, ranks) != TW_OK) fail_msg("%s: %s", spec, tw_last_error());
}

static inline void group_destroy(loopback *group, gradients *g)
{
    loopback_destroy(group);
    gradients_destroy(g);
}

/* Takes the step with all ranks, who end with the same bits; returns whether they skipped it. */
static inline int group_step(loopback *group, gradients *g)
{
    int skipped;
    if (loopback_step(group, g->rank, -1, NULL, &skipped) != TW_OK) fail_msg("%s", tw_last_error());
    if (!skipped) assert_true(gradients_agree(g));
    return skipped;
}

/* How many times smaller than fp32 a rank's packet is after three steps of one tensor of 1024 * columns elements. */
static inline double group_ratio(const char *spec, size_t columns)
{
    const tw_tensor table[] = {{"w", 2, {1024, columns}}};
    loopback group;
    gradients g;
    group_create(&group, &g, spec, table, 1, 2);
    for (int step = 0; step < 3; step++) {
        gradients_draw(&g, 1, step, 0);
        assert_false(group_step(&group, &g));
    }
    double ratio = 4.0 * 1024 * (double)columns / (double)group.packet_bytes;
    print_message("%zu bytes, %.1f times less than fp32\n", group.packet_bytes, ratio);
    group_destroy(&group, &g);
    return ratio;
}

#endif
