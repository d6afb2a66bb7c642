/* bench_kernels [COUNT]: how fast one thread streams through each row of each level, beside what the memory gives in
 * the same run: a plain C read and a plain C momentum update. Prints JSON; gbps counts each load and each store once.
 * memcpy and crc32c, which every message goes through, are the same at every level.
 */
#include "kernels.h"
#include "error.h"
#include "half.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

enum { RUNS = 7 };
/* v is uniform in (-1, 1): a thousandth of it stands out. The step is so small that v, and so what passes, stays. */
static const float step = 1e-12f, keep = 0.9f, threshold = 0.999f;

typedef struct arena {
    size_t n;
    float *u, *v, *g, *value;
    uint32_t *index;
    uint16_t *half;
} arena;

static void plain_update(const tw_kernels *kernels, arena *a)
{
    (void)kernels;
    for (size_t i = 0; i < a->n; i++) {
        a->u[i] = keep * a->u[i] + step * a->g[i];
        a->v[i] += a->u[i];
    }
}

static void plain_read(const tw_kernels *kernels, arena *a)
{
    (void)kernels;
    uint32_t mixed[16] = {0}; /* a cache line at a time */
    for (size_t i = 0; i + 16 <= a->n; i += 16)
        for (size_t k = 0; k < 16; k++) mixed[k] ^= tw_float_bits(a->v[i + k]);
    memcpy(a->index, mixed, sizeof mixed); /* so that the loop is not dead code */
}

static void all_finite(const tw_kernels *kernels, arena *a)
{
    a->index[0] = (uint32_t)kernels->all_finite(a->v, a->n);
}

static void all_below(const tw_kernels *kernels, arena *a)
{
    a->index[0] = (uint32_t)kernels->all_below(a->v, a->n, INFINITY);
}

static void sum_squares(const tw_kernels *kernels, arena *a)
{
    a->value[0] = (float)kernels->sum_squares(a->v, a->n);
}

static void add(const tw_kernels *kernels, arena *a)
{
    kernels->add(a->value, a->g, a->n);
}

static void scale(const tw_kernels *kernels, arena *a)
{
    kernels->scale(a->value, keep, a->n);
}

static void momentum_select(const tw_kernels *kernels, arena *a)
{
    kernels->momentum_select(a->u, a->v, a->g, a->n, step, keep, 0, threshold, 0, a->index, a->value, NULL);
}

static void accumulate_select(const tw_kernels *kernels, arena *a)
{
    kernels->accumulate_select(a->v, a->g, a->n, step, threshold, 0, a->index, a->value, NULL);
}

static void accumulate_top(const tw_kernels *kernels, arena *a)
{
    a->value[0] = kernels->chunks->accumulate_top(a->v, a->g, a->n, step, keep, 100, a->index);
}

static void accumulate_rising(const tw_kernels *kernels, arena *a)
{
    double largest = 0;
    kernels->chunks->accumulate_rising(a->v, a->g, a->n, step, 500, 0, a->index, a->value, &largest);
}

static void select_only(const tw_kernels *kernels, arena *a)
{
    kernels->select(a->v, a->n, threshold, 0, a->index, a->value);
}

static void to_fp16(const tw_kernels *kernels, arena *a)
{
    kernels->to_fp16(a->half, a->v, a->n);
}

static void to_bf16(const tw_kernels *kernels, arena *a)
{
    kernels->to_bf16(a->half, a->v, a->n);
}

static void from_fp16(const tw_kernels *kernels, arena *a)
{
    kernels->from_fp16(a->value, a->half, a->n);
}

static void from_bf16(const tw_kernels *kernels, arena *a)
{
    kernels->from_bf16(a->value, a->half, a->n);
}

static void copy(const tw_kernels *kernels, arena *a)
{
    (void)kernels;
    memcpy(a->value, a->g, a->n * sizeof *a->g);
}

static void crc32c(const tw_kernels *kernels, arena *a)
{
    (void)kernels;
    a->index[0] = tw_crc32c(0, a->v, a->n * sizeof *a->v);
}

typedef struct benchmark {
    const char *name;
    void (*run)(const tw_kernels *kernels, arena *a);
    int bytes; /* an element */
} benchmark;

static const benchmark floors[] = {{"plain_update", plain_update, 20}, {"plain_read", plain_read, 4}};
static const benchmark rows[] = {
    {"momentum_select", momentum_select, 24},
    {"accumulate_select", accumulate_select, 16},
    {"accumulate_top", accumulate_top, 12},
    {"accumulate_rising", accumulate_rising, 12},
    {"select", select_only, 4},
    {"all_finite", all_finite, 4},
    {"all_below", all_below, 4},
    {"sum_squares", sum_squares, 4},
    {"add", add, 12},
    {"scale", scale, 8},
    {"to_fp16", to_fp16, 6},
    {"from_fp16", from_fp16, 6},
    {"to_bf16", to_bf16, 6},
    {"from_bf16", from_bf16, 6},
    {"memcpy", copy, 8},
    {"crc32c", crc32c, 4},
};
enum { FLOORS = sizeof floors / sizeof *floors, ROWS = sizeof rows / sizeof *rows };

static double time_one(const benchmark *b, const tw_kernels *kernels, arena *a)
{
    double start = tw_clock();
    b->run(kernels, a);
    return tw_clock() - start;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double gbps(double seconds[RUNS], const benchmark *b, size_t n)
{
    qsort(seconds, RUNS, sizeof *seconds, compare);
    return (double)n * b->bytes / seconds[RUNS / 2] / 1e9;
}

/* Everything once a run, rather than each row seven times: a neighbour's burst of work then hits all alike. */
static void bench_level(tw_isa_level level, arena *a)
{
    const tw_kernels *kernels = tw_kernels_at(level);
    double floor_seconds[FLOORS][RUNS], seconds[ROWS][RUNS];
    for (int run = 0; run < RUNS; run++) {
        for (int i = 0; i < FLOORS; i++) floor_seconds[i][run] = time_one(&floors[i], kernels, a);
        for (int i = 0; i < ROWS; i++) seconds[i][run] = time_one(&rows[i], kernels, a);
    }
    double update = gbps(floor_seconds[0], &floors[0], a->n), read = gbps(floor_seconds[1], &floors[1], a->n);
    printf("%s\n {\"isa\":\"%s\",\"plain_update_gbps\":%.1f,\"plain_read_gbps\":%.1f,\"rows\":[", level ? "," : "",
           tw_isa_name(level), update, read);
    for (int i = 0; i < ROWS; i++) {
        double rate = gbps(seconds[i], &rows[i], a->n);
        printf("%s\n  {\"row\":\"%s\",\"ms\":%.2f,\"gbps\":%.1f,\"of_plain_update\":%.2f,\"of_plain_read\":%.2f}",
               i ? "," : "", rows[i].name, seconds[i][RUNS / 2] * 1e3, rate, rate / update, rate / read);
    }
    printf("]}");
}

static tw_status create(arena *a)
{
    TW_TRY(tw_allocate(a->n, sizeof *a->u, &a->u));
    TW_TRY(tw_allocate(a->n, sizeof *a->v, &a->v));
    TW_TRY(tw_allocate(a->n, sizeof *a->g, &a->g));
    TW_TRY(tw_allocate(a->n, sizeof *a->value, &a->value));
    TW_TRY(tw_allocate(a->n, sizeof *a->index, &a->index));
    TW_TRY(tw_allocate(a->n, sizeof *a->half, &a->half));
    for (size_t i = 0; i < a->n; i++) {
        uint32_t words[4];
        tw_random(1, 0, i, words);
        a->v[i] = (float)((int32_t)words[0] * 0x1p-31);
        a->g[i] = (float)((int32_t)words[1] * 0x1p-31);
    }
    return TW_OK;
}

static void destroy(arena *a)
{
    tw_free(a->u);
    tw_free(a->v);
    tw_free(a->g);
    tw_free(a->value);
    tw_free(a->index);
    tw_free(a->half);
}

int main(int argc, char **argv)
{
    arena a = {.n = argc > 1 ? strtoul(argv[1], NULL, 10) : 25600000};
    if (a.n < 16) {
        fprintf(stderr, "usage: bench_kernels [COUNT]   COUNT is 16 or more, 25600000 if not given\n");
        return 2;
    }
    if (create(&a) != TW_OK) {
        fprintf(stderr, "bench_kernels: %s\n", tw_last_error());
        destroy(&a);
        return 1;
    }
    printf("{\"count\":%zu,\"runs\":%d,\"levels\":[", a.n, RUNS);
    for (int level = 0; level < TW_ISA_LEVELS; level++)
        if (tw_kernels_at((tw_isa_level)level)) bench_level((tw_isa_level)level, &a);
    printf("]}\n");
    destroy(&a);
    return 0;
}
