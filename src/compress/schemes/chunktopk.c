/* chunktopk - the k largest elements of each chunk of a tensor, with error feedback that decays: what SparseLoCo sends
 * of its pseudo-gradients (Sarfi et al. 2025, arXiv 2508.15706; equations as in Covenant-72B, arXiv 2603.08163), and
 * DeMo of its coefficients. Per tensor, with g already scaled by 1/N:
 *     v = decay * v + g
 *     send the k largest |v| of each chunk;    what was sent leaves v
 * Chunks spread what is sent over the whole tensor. They are runs of `chunk` elements where a tensor has one dimension,
 * and squares of as many in the matrix of the first dimension and all others; those at the edges are smaller, and send
 * in proportion. Which chunk an element belongs to is the sender's business alone: packets say where in the tensor it
 * stands. */
#include "error.h"
#include "memory.h"
#include "smaller.h"
#include "sparse.h"

#include <math.h>
#include <string.h>

typedef struct chunktopk {
    tw_sparse sparse;
    int64_t chunk, k;
    double decay, link;
    int values, indices, agg;
    float *part;      /* a chunk's elements, one after the other */
    uint64_t *chosen; /* a bit for each element of the largest tensor */
} chunktopk;

static const tw_option options[] = {
    {"chunk", TW_OPTION_INTEGER, offsetof(chunktopk, chunk), "4096", 1, 1 << 20, NULL,
     "elements of a chunk: a run where a tensor has one dimension, else a square, as 64 x 64"},
    {"k", TW_OPTION_INTEGER, offsetof(chunktopk, k), "64", 1, 1 << 20, NULL,
     "elements sent of each whole chunk; of a smaller one in proportion, and one at least"},
    {"decay", TW_OPTION_REAL, offsetof(chunktopk, decay), "0.95", 0, 1, NULL,
     "what is kept of the residual from step to step; 0: nothing, which is no error feedback"},
    TW_OPTION_VALUES(chunktopk, "lm2"),
    TW_OPTIONS_INDICES(chunktopk),
    {"agg", TW_OPTION_CHOICE, offsetof(chunktopk, agg), "mean", 0, 0, "mean|senders",
     "mean: over all ranks; senders: over those that sent the element, as public releases do"},
};

/* As the paper has it, which takes no tensor for too flat to be cut. */
static const tw_preset presets[] = {{"indices", "adaptive"}, {"min_dims", "1"}, {NULL, NULL}};

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

/* How a tensor is cut: as a matrix, into chunks of at most `height` rows and `width` columns. */
typedef struct cut {
    size_t rows, columns, height, width;
} cut;

static cut cut_of(const chunktopk *self, const tw_scheme_tensor *tensor)
{
    size_t chunk = (size_t)self->chunk, side = (size_t)sqrt((double)chunk);
    if (tensor->dims < 2) return (cut){1, tensor->count, 1, chunk};
    return (cut){tensor->shape[0], tensor->count / tensor->shape[0], side, side};
}

static size_t wanted_of_chunk(const chunktopk *self, size_t elements)
{
    size_t wanted = (2 * elements * (size_t)self->k / (size_t)self->chunk + 1) / 2; /* to the nearest */
    return wanted < 1 ? 1 : tw_smaller(wanted, elements);
}

static size_t chunktopk_wanted(const tw_sparse *sparse, size_t tensor)
{
    const chunktopk *self = (const chunktopk *)sparse;
    cut by = cut_of(self, &sparse->scheme.tensors[tensor]);
    size_t sum = 0;
    for (size_t row = 0; row < by.rows; row += by.height)
        for (size_t column = 0; column < by.columns; column += by.width)
            sum +=
                wanted_of_chunk(self, tw_smaller(by.height, by.rows - row) * tw_smaller(by.width, by.columns - column));
    return sum;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Updates the residual of a chunk's row, and copies it. */
static void chunktopk_accumulate(float *v, const float *g, size_t n, float decay, float scale, float *copy)
{
    for (size_t i = 0; i < n; i++) copy[i] = v[i] = decay * v[i] + scale * g[i];
}

/* Marks the largest of the chunk whose first element is at row, column. */
static void chunktopk_choose(chunktopk *self, size_t tensor, const cut *by, size_t row, size_t column)
{
    tw_sparse *sparse = &self->sparse;
    size_t rows = tw_smaller(by->height, by->rows - row), width = tw_smaller(by->width, by->columns - column),
           n = rows * width;
    size_t first = row * by->columns + column;
    float *v = tw_sparse_residual(sparse, tensor);
    const float *g = sparse->scheme.gradients[tensor];
    for (size_t r = 0; r < rows; r++) {
        size_t at = first + r * by->columns;
        chunktopk_accumulate(v + at, g + at, width, (float)self->decay, sparse->scheme.scale, self->part + r * width);
    }
    tw_select_source source = tw_select_from(self->part);
    size_t count = tw_select_top(&sparse->selector, &source, n, wanted_of_chunk(self, n), sparse->index, sparse->value);
    for (size_t j = 0; j < count; j++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a chunk has an element at least, says its option */
        size_t i = first + sparse->index[j] / width * by->columns + sparse->index[j] % width;
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
    cut by = cut_of(self, &sparse->scheme.tensors[tensor]);
    sparse->selector.hint = &sparse->support[tensor].hint; /* a chunk learns from the one before */
    for (size_t row = 0; row < by.rows; row += by.height)
        for (size_t column = 0; column < by.columns; column += by.width)
            chunktopk_choose(self, tensor, &by, row, column);
    chunktopk_collect(self, tensor);
    tw_sparse_send(sparse, tensor);
}

/* ---- the scheme -------------------------------------------------------------------------------------------------- */

static tw_status chunktopk_create(tw_scheme *scheme)
{
    chunktopk *self = (chunktopk *)scheme;
    size_t largest = 0;
    scheme->by_senders = self->agg;
    if (self->k > self->chunk)
        return tw_fail(TW_ERROR_SPEC, "chunktopk: k=%lld is more than a chunk has, %lld; a 64th of it is usual",
                       (long long)self->k, (long long)self->chunk);
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].count > largest) largest = scheme->tensors[i].count;
    TW_TRY(tw_allocate((size_t)self->chunk, sizeof *self->part, &self->part));
    TW_TRY(tw_allocate((largest + 63) / 64, sizeof *self->chosen, &self->chosen));
    tw_sparse_settings settings = {.density = (double)self->k / (double)self->chunk,
                                   .most_density = (double)self->k / (double)self->chunk,
                                   .wanted = chunktopk_wanted,
                                   .feedback = 1,
                                   .coding = {(tw_value_code)self->values, (tw_index_choice)self->indices, self->link},
                                   .take = chunktopk_take};
    return tw_sparse_create(scheme, &settings);
}

static void chunktopk_destroy(tw_scheme *scheme)
{
    chunktopk *self = (chunktopk *)scheme;
    tw_free(self->part);
    tw_free(self->chosen);
    tw_sparse_destroy(scheme);
}

const tw_scheme_ops tw_scheme_chunktopk = {
    .name = "chunktopk",
    .summary = "the k largest elements of each chunk, the rest kept and decaying",
    .floor_bytes = 12,
    .struct_size = sizeof(chunktopk),
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .preset = presets,
    .create = chunktopk_create,
    .next = tw_sparse_next,
    .revert = tw_sparse_revert,
    .walk = tw_sparse_walk,
    .plan = tw_sparse_plan,
    .destroy = chunktopk_destroy,
};
