/* chunktopk - the k largest elements of each chunk of a tensor, with error feedback that decays: what SparseLoCo sends
 * of its pseudo-gradients (Sarfi et al. 2025, arXiv 2508.15706; equations as in Covenant-72B, arXiv 2603.08163), and
 * DeMo of its coefficients. Per tensor, with g already scaled by 1/N:
 *     v = decay * v + g
 *     send the k largest |v| of each chunk;    what was sent leaves v
 * Chunks spread what is sent over the whole tensor. They are runs of `chunk` elements where a tensor has one dimension,
 * and squares of as many in the matrix of the first dimension and all others; those at the edges are smaller, and send
 * in proportion. With cut=even they divide a tensor evenly, as demo's do. Which chunk an element belongs to is the
 * sender's business alone: packets say where in the tensor it stands.
 *
 * demo - decoupled momentum (Peng, Quesnelle, Kingma 2024, arXiv 2411.19870). The same of a chunk's cosine transform C,
 * with v the momentum, which no two ranks need to have alike:
 *     v = momentum * v + C g
 *     send the k largest |v| of each chunk;    what was sent leaves v
 *     what comes out is the sign of C^-1 applied to the mean of what was sent
 * The paper keeps C^-1 v, transforms it in each step and takes C^-1 of what was sent out of it: since C is linear and
 * orthonormal, that is the same, for half the work. Its learning rate inside of v is only a scale where it is constant.
 * Chunks divide a tensor evenly: their sides are the largest divisors of its own up to the square root of `chunk`. */
#include "cosine.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "smaller.h"
#include "sparse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct chunktopk {
    tw_sparse sparse;
    int64_t chunk, k;
    double decay;
    int agg, map;
    int even;         /* a tensor is cut into chunks of one size */
    int transforms;   /* v is of the chunks' cosine transforms */
    tw_cosine cosine; /* if it is */
    char called[32];  /* and of chunks of that size: another's v means something else */
    float *part;      /* a chunk's elements, one after the other */
    uint64_t *chosen; /* a bit for each element of the largest tensor */
} chunktopk;

enum { MAP_SIGN, MAP_NONE };

#define OPTION_K                                                                                                       \
    TW_OPTION("k", TW_OPTION_INTEGER, offsetof(chunktopk, k), "64", 1, 1 << 20, NULL,                                  \
              "elements sent of each whole chunk; of a smaller one in proportion, and one at least")
#define OPTIONS_SENT                                                                                                   \
    TW_OPTION_VALUES("lm2"), TW_OPTIONS_INDICES,                                                                       \
        TW_OPTION("agg", TW_OPTION_CHOICE, offsetof(chunktopk, agg), "mean", 0, 0, "mean|senders",                     \
                  "mean: over all ranks; senders: over those that sent the element, as public releases do")

static const tw_option options[] = {
    {"chunk", TW_OPTION_INTEGER, offsetof(chunktopk, chunk), "4096", 1, 1 << 20, NULL,
     "elements of a chunk: a run where a tensor has one dimension, else a square, as 64 x 64"},
    {"cut", TW_OPTION_CHOICE, offsetof(chunktopk, even), "ragged", 0, 0, "ragged|even",
     "ragged: chunks at a tensor's edges are smaller; even: all are alike, as in public releases and demo"},
    OPTION_K,
    {"decay", TW_OPTION_REAL, offsetof(chunktopk, decay), "0.95", 0, 1, NULL,
     "what is kept of the residual from step to step; 0: nothing, which is no error feedback"},
    OPTIONS_SENT,
};

static const tw_option demo_options[] = {
    {"chunk", TW_OPTION_INTEGER, offsetof(chunktopk, chunk), "4096", 1, 1 << 16, NULL,
     "elements of the largest chunk: of a tensor of one dimension a run of its root, else a square, as 64 x 64"},
    OPTION_K,
    {"momentum", TW_OPTION_REAL, offsetof(chunktopk, decay), "0.999", 0, 1, NULL,
     "what is kept of the momentum that was not sent; the optimiser's own must then be 0"},
    OPTIONS_SENT,
    {"map", TW_OPTION_CHOICE, offsetof(chunktopk, map), "sign", 0, 0, "sign|none",
     "what comes out. sign: of every element -1, 0 or 1; none: the mean as it arrived"},
};

/* As the paper has it, which takes no tensor for too flat to be cut. */
static const tw_preset presets[] = {{"indices", "adaptive"}, {"min_dims", "1"}, {NULL, NULL}};

/* As the release has it, but for the two bits of a value. */
static const tw_preset demo_presets[] = {{"k", "32"},       {"agg", "senders"},    {"indices", "adaptive"},
                                         {"min_dims", "1"}, {"min_elements", "1"}, {NULL, NULL}};

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

/* How a tensor is cut: as a matrix, into chunks of at most `height` rows and `width` columns. */
typedef struct cut {
    size_t rows, columns, height, width;
} cut;

static size_t divisor_up_to(size_t n, size_t most)
{
    size_t divisor = tw_smaller(n, most);
    while (n % divisor) divisor--;
    return divisor;
}

static cut cut_of(const chunktopk *self, const tw_scheme_tensor *tensor)
{
    size_t chunk = (size_t)self->chunk, side = (size_t)sqrt((double)chunk);
    size_t rows = tensor->dims < 2 ? 1 : tensor->shape[0], columns = tensor->count / rows;
    if (self->even) return (cut){rows, columns, divisor_up_to(rows, side), divisor_up_to(columns, side)};
    if (tensor->dims < 2) return (cut){1, tensor->count, 1, chunk};
    return (cut){rows, columns, side, side};
}

static size_t wanted_of_chunk(const chunktopk *self, size_t elements)
{
    size_t wanted = (2 * elements * (size_t)self->k / (size_t)self->chunk + 1) / 2; /* to the nearest */
    return wanted < 1 ? 1 : tw_smaller(wanted, elements);
}

/* One of a tensor's. */
typedef struct chunk_place {
    size_t tensor, first, height, width;
    size_t columns; /* of the tensor's matrix: from row to row */
} chunk_place;

typedef void (*chunk_visit)(chunktopk *self, const chunk_place *at, void *context);

static void each_chunk(chunktopk *self, size_t tensor, chunk_visit visit, void *context)
{
    cut by = cut_of(self, &self->sparse.scheme.tensors[tensor]);
    for (size_t row = 0; row < by.rows; row += by.height)
        for (size_t column = 0; column < by.columns; column += by.width) {
            chunk_place at = {tensor, row * by.columns + column, tw_smaller(by.height, by.rows - row),
                              tw_smaller(by.width, by.columns - column), by.columns};
            visit(self, &at, context);
        }
}

static void count_wanted(chunktopk *self, const chunk_place *at, void *context)
{
    *(size_t *)context += wanted_of_chunk(self, at->height * at->width);
}

static size_t chunktopk_wanted(const tw_sparse *sparse, size_t tensor)
{
    size_t sum = 0;
    each_chunk((chunktopk *)sparse, tensor, count_wanted, &sum);
    return sum;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Asks for what a row of the next chunk will read, since no processor foresees so many short rows. Behind the end of an
 * array, where nothing may be read, it does no harm. */
static void fetch_next(const float *row, size_t width)
{
    uintptr_t next = (uintptr_t)(row + width);
    for (size_t byte = 0; byte < width * sizeof *row; byte += 64) __builtin_prefetch((const void *)(next + byte), 1);
}

/* Updates the residual of a chunk's row by what is in `part`, and leaves it there, too. */
static void chunktopk_accumulate(float *v, float *part, size_t n, float decay)
{
    for (size_t i = 0; i < n; i++) part[i] = v[i] = decay * v[i] + part[i];
}

/* A chunk's gradient, or what its cosine transform makes of it. */
static void fill_part(const chunktopk *self, const chunk_place *at)
{
    const float *g = self->sparse.scheme.gradients[at->tensor] + at->first, scale = self->sparse.scheme.scale;
    for (size_t r = 0; r < at->height; r++) {
        fetch_next(g + r * at->columns, at->width);
        for (size_t i = 0; i < at->width; i++) self->part[r * at->width + i] = scale * g[r * at->columns + i];
    }
    if (self->transforms) tw_cosine_forward(&self->cosine, self->part, at->height, at->width);
}

/* Marks the largest of a chunk. */
static void chunktopk_choose(chunktopk *self, const chunk_place *at, void *context)
{
    tw_sparse *sparse = &self->sparse;
    size_t n = at->height * at->width;
    float *v = tw_sparse_residual(sparse, at->tensor) + at->first;
    (void)context;
    fill_part(self, at);
    for (size_t r = 0; r < at->height; r++) {
        fetch_next(v + r * at->columns, at->width);
        chunktopk_accumulate(v + r * at->columns, self->part + r * at->width, at->width, (float)self->decay);
    }
    tw_select_source source = tw_select_from(self->part);
    size_t count = tw_select_top(&sparse->selector, &source, n, wanted_of_chunk(self, n), sparse->index, sparse->value);
    for (size_t j = 0; j < count; j++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a chunk has an element at least, says its option */
        size_t i = at->first + sparse->index[j] / at->width * at->columns + sparse->index[j] % at->width;
        self->chosen[i / 64] |= (uint64_t)1 << i % 64;
    }
}

/* What is marked becomes the support, in ascending order, and the marks go. */
static void chunktopk_collect(chunktopk *self, size_t tensor)
{
    const float *v = tw_sparse_residual(&self->sparse, tensor);
    tw_support *support = &self->sparse.support[tensor];
    size_t words = (self->sparse.scheme.tensors[tensor].count + 63) / 64;
    support->count = 0;
    for (size_t w = 0; w < words; w++)
        for (; self->chosen[w]; self->chosen[w] &= self->chosen[w] - 1) {
            uint32_t i = (uint32_t)(64 * w + (size_t)__builtin_ctzll(self->chosen[w]));
            support->index[support->count] = i;
            support->value[support->count++] = v[i];
        }
}

static void chunktopk_take(tw_sparse *sparse, size_t tensor)
{
    chunktopk *self = (chunktopk *)sparse;
    sparse->selector.hint = &sparse->support[tensor].hint; /* a chunk learns from the one before */
    each_chunk(self, tensor, chunktopk_choose, NULL);
    chunktopk_collect(self, tensor);
    tw_sparse_send(sparse, tensor);
}

/* ---- what comes out of demo -------------------------------------------------------------------------------------- */

static void transform_back(chunktopk *self, const chunk_place *at, void *context)
{
    float *sum = self->sparse.scheme.gradients[at->tensor] + at->first;
    (void)context;
    for (size_t r = 0; r < at->height; r++)
        memcpy(self->part + r * at->width, sum + r * at->columns, at->width * sizeof *sum);
    tw_cosine_inverse(&self->cosine, self->part, at->height, at->width);
    for (size_t r = 0; r < at->height; r++)
        memcpy(sum + r * at->columns, self->part + r * at->width, at->width * sizeof *sum);
}

/* Coefficients near the end of floats, which a peer may have made up, add up to what is none. */
static void demo_complete(tw_sparse *sparse)
{
    chunktopk *self = (chunktopk *)sparse;
    tw_scheme *scheme = &sparse->scheme;
    for (size_t t = 0; t < scheme->count; t++) {
        float *sum = scheme->gradients[t];
        if (scheme->tensors[t].compressed) each_chunk(self, t, transform_back, NULL);
        if (!tw_kernels_best()->all_finite(sum, scheme->tensors[t].count)) scheme->skipped = 1;
        for (size_t i = 0; self->map == MAP_SIGN && i < scheme->tensors[t].count; i++)
            sum[i] = (float)((sum[i] > 0) - (sum[i] < 0));
    }
}

/* ---- the scheme -------------------------------------------------------------------------------------------------- */

static tw_status create_chunks(tw_scheme *scheme, void (*complete)(tw_sparse *sparse))
{
    chunktopk *self = (chunktopk *)scheme;
    size_t largest = 0;
    scheme->by_senders = self->agg;
    if (self->k > self->chunk)
        return tw_fail(TW_ERROR_SPEC, "%s: k=%lld is more than a chunk has, %lld; a 64th of it is usual",
                       scheme->ops->name, (long long)self->k, (long long)self->chunk);
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].count > largest) largest = scheme->tensors[i].count;
    TW_TRY(tw_allocate((size_t)self->chunk, sizeof *self->part, &self->part));
    TW_TRY(tw_allocate((largest + 63) / 64, sizeof *self->chosen, &self->chosen));
    tw_sparse_settings settings = {.density = (double)self->k / (double)self->chunk,
                                   .most_density = (double)self->k / (double)self->chunk,
                                   .wanted = chunktopk_wanted,
                                   .called = self->transforms ? self->called : NULL,
                                   .take = chunktopk_take,
                                   .complete = complete};
    self->sparse.feedback = self->decay > 0;
    return tw_sparse_create(scheme, &settings);
}

static tw_status chunktopk_create(tw_scheme *scheme)
{
    return create_chunks(scheme, NULL);
}

static tw_status demo_create(tw_scheme *scheme)
{
    chunktopk *self = (chunktopk *)scheme;
    self->transforms = self->even = 1;
    snprintf(self->called, sizeof self->called, "coefficients%lld", (long long)self->chunk);
    TW_TRY(tw_cosine_create(&self->cosine, (size_t)sqrt((double)self->chunk)));
    for (size_t i = 0; i < scheme->count; i++) {
        cut by = cut_of(self, &scheme->tensors[i]);
        TW_TRY(tw_cosine_know(&self->cosine, by.height));
        TW_TRY(tw_cosine_know(&self->cosine, by.width));
    }
    return create_chunks(scheme, demo_complete);
}

static float demo_momentum(const tw_scheme *scheme, int *nesterov)
{
    *nesterov = 0;
    return (float)((const chunktopk *)scheme)->decay;
}

static void chunktopk_destroy(tw_scheme *scheme)
{
    chunktopk *self = (chunktopk *)scheme;
    tw_free(self->part);
    tw_free(self->chosen);
    tw_cosine_destroy(&self->cosine);
    tw_sparse_destroy(scheme);
}

#define CHUNKS(its_options, its_presets)                                                                               \
    .floor_bytes = 12, .struct_size = sizeof(chunktopk), TW_OPTIONS(its_options), .preset = (its_presets),             \
    .next = tw_sparse_next, .revert = tw_sparse_revert, .walk = tw_sparse_walk, .plan = tw_sparse_plan,                \
    .destroy = chunktopk_destroy

const tw_scheme_ops tw_scheme_chunktopk = {
    .name = "chunktopk",
    .summary = "the k largest elements of each chunk, the rest kept and decaying",
    .create = chunktopk_create,
    CHUNKS(options, presets),
};

const tw_scheme_ops tw_scheme_demo = {
    .name = "demo",
    .summary = "DeMo: the largest cosine coefficients of each chunk's momentum, the rest kept; out come signs",
    .create = demo_create,
    .momentum = demo_momentum,
    CHUNKS(demo_options, demo_presets),
};
