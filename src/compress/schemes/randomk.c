/* randomk - k elements drawn at random, the same on all ranks: no index travels, and the values are summed in one
 * all-reduce (Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018; unbiased form: Wangni et al. 2018).
 *
 * The draw is stratified. A tensor of n elements falls into k bins of floor(n/k) or ceil(n/k), and one element of each
 * is drawn, uniformly and independently of the other bins, by a hash of (seed, step, tensor, bin): no duplicates,
 * indices ascending, nothing to sort. An element of a bin of b is drawn with probability 1/b, which is k/n where k
 * divides n (to within 2^-32: a hash has 32 bits). Compared with k of n without replacement every element has the same
 * mean and the same variance, and so has the number drawn, k; only the covariance differs: within a bin elements
 * exclude each other, between bins they are independent, where k of n has a slight repulsion -1/(n-1) between all of
 * them.
 *
 *     feedback=on (default):  v += g; send v where drawn; what was sent leaves v. Biased in a step, complete over time.
 *     feedback=off:           send b * g where drawn: unbiased, with variance sum over bins of (b-1) * |g|^2.
 *
 * With feedback an element waits n/k steps on average, so that the learning rate bears about k/n of what momentum SGD
 * takes: hence the default density. Momentum stays with the optimiser. */
#include "aligned.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "sparse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

enum { BLOCK = 4096 /* elements: small enough that what is drawn of them is still in the cache */ };

typedef struct randomk {
    tw_scheme scheme;
    double density;
    int64_t min_sent, seed;
    int feedback, values;
    size_t *wanted;      /* of each tensor */
    size_t count, drawn; /* elements of compressed tensors, and of them drawn in a step */
    float *residual;     /* with feedback: of the compressed tensors, one after the other */
    uint32_t *index;     /* drawn, within their tensors, one tensor after the other */
    float *value;        /* that this rank sends */
    tw_aligned sum;      /* what travels */
    tw_dense leftovers;
} randomk;

static const tw_option options[] = {
    {"density", TW_OPTION_REAL, offsetof(randomk, density), "0.1", 1e-7, 1, NULL,
     "fraction of each tensor that is sent"},
    TW_OPTION_MIN_SENT(randomk),
    TW_OPTION_FEEDBACK(randomk, "on"),
    {"values", TW_OPTION_CHOICE, offsetof(randomk, values), "fp32", 0, 0, TW_DENSE_CHOICES,
     "how a value travels; with feedback, what rounding loses stays in the residual"},
    {"seed", TW_OPTION_INTEGER, offsetof(randomk, seed), "1", 0, 1e15, NULL, "of the draws; the same on every rank"},
};

/* ---- create ------------------------------------------------------------------------------------------------------ */

static void count_drawn(randomk *self)
{
    for (size_t i = 0; i < self->scheme.count; i++) {
        const tw_scheme_tensor *tensor = &self->scheme.tensors[i];
        if (!tensor->compressed) continue;
        self->wanted[i] = tw_sparse_wanted(tensor->count, self->density, (size_t)self->min_sent);
        self->count += tensor->count;
        self->drawn += self->wanted[i];
    }
}

static tw_status randomk_create(tw_scheme *scheme)
{
    randomk *self = (randomk *)scheme;
    TW_TRY(tw_allocate(scheme->count, sizeof *self->wanted, &self->wanted));
    count_drawn(self);
    TW_TRY(tw_allocate(self->feedback ? self->count : 0, sizeof *self->residual, &self->residual));
    TW_TRY(tw_allocate(self->drawn, sizeof *self->index, &self->index));
    TW_TRY(tw_allocate(self->drawn, sizeof *self->value, &self->value));
    TW_TRY(tw_aligned_create(&self->sum, self->values, scheme->size, self->drawn));
    return tw_leftovers_create(&self->leftovers, scheme);
}

/* ---- the draw ---------------------------------------------------------------------------------------------------- */

/* The k bins of n elements, one after the other: bin j begins at floor(j*n/k). */
typedef struct bins {
    size_t n, k, first, size, carry;
} bins;

static bins first_bin(size_t n, size_t k)
{
    return (bins){.n = n, .k = k, .size = n / k, .carry = n % k};
}

static void next_bin(bins *b)
{
    b->first += b->size;
    b->carry += b->n % b->k;
    int longer = b->carry >= b->k;
    b->carry -= longer ? b->k : 0;
    b->size = b->n / b->k + (size_t)longer;
}

/* Steele, Lea and Flood's SplitMix64 (OOPSLA 2014) at a counter. */
static uint32_t randomk_hash(uint64_t key, uint64_t counter)
{
    uint64_t x = key + (counter + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)((x ^ x >> 31) >> 32);
}

/* Of a tensor in this step. By its name, not its place: how tensors are fused into messages changes no draw. */
static uint64_t draw_key(const randomk *self, const tw_scheme_tensor *tensor)
{
    uint32_t words[4], name = tw_crc32c(0, tensor->name, strlen(tensor->name));
    tw_random((uint64_t)self->seed, self->scheme.step, name, words);
    return (uint64_t)words[0] << 32 | words[1];
}

static void randomk_draw(const randomk *self, size_t tensor, uint32_t *index)
{
    uint64_t key = draw_key(self, &self->scheme.tensors[tensor]);
    bins b = first_bin(self->scheme.tensors[tensor].count, self->wanted[tensor]);
    for (size_t j = 0; j < b.k; j++, next_bin(&b))
        index[j] = (uint32_t)(b.first + ((uint64_t)randomk_hash(key, j) * b.size >> 32));
}

/* ---- what is sent ------------------------------------------------------------------------------------------------ */

/* Sends as much of n drawn elements of a residual as the format holds. */
static void randomk_send(randomk *self, size_t at, size_t n, float *residual)
{
    const uint32_t *index = self->index + at;
    float *value = self->value + at;
    for (size_t j = 0; j < n; j++) value[j] = residual[index[j]];
    tw_aligned_put(&self->sum, at, value, n);
    for (size_t j = 0; j < n; j++) residual[index[j]] -= value[j];
}

/* The draws from `at` on belong to one tensor. */
static void take_residual(randomk *self, size_t tensor, size_t at, float *residual)
{
    const float *gradient = self->scheme.gradients[tensor];
    size_t count = self->scheme.tensors[tensor].count, j = at, end = at + self->wanted[tensor];
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = count - first < BLOCK ? count - first : BLOCK;
        tw_kernels_best()->quantise->accumulate(residual + first, gradient + first, n, self->scheme.scale);
        size_t sent = j;
        while (j < end && self->index[j] < first + n) j++;
        randomk_send(self, sent, j - sent, residual);
    }
}

static void take_unbiased(randomk *self, size_t tensor, size_t at)
{
    const float *gradient = self->scheme.gradients[tensor];
    bins b = first_bin(self->scheme.tensors[tensor].count, self->wanted[tensor]);
    for (size_t j = at; j < at + b.k; j++, next_bin(&b))
        self->value[j] = self->scheme.scale * gradient[self->index[j]] * (float)b.size;
    tw_dense_put(self->sum.dtype, self->sum.values, at, self->value + at, b.k);
}

/* What is drawn is summed on all ranks; this one adds nothing to it. */
static void take_nothing(randomk *self, size_t tensor, size_t at)
{
    size_t n = self->wanted[tensor];
    memset(self->value + at, 0, n * sizeof *self->value);
    tw_dense_put(self->sum.dtype, self->sum.values, at, self->value + at, n);
}

static void randomk_take(randomk *self)
{
    const tw_scheme *scheme = &self->scheme;
    float *residual = self->residual;
    for (size_t i = 0, at = 0; i < scheme->count; at += self->wanted[i++]) {
        if (!scheme->tensors[i].compressed) continue;
        randomk_draw(self, i, self->index + at);
        if (scheme->absent[i])
            take_nothing(self, i, at);
        else if (self->feedback)
            take_residual(self, i, at, residual);
        else
            take_unbiased(self, i, at);
        residual += self->feedback ? scheme->tensors[i].count : 0;
    }
}

/* Hands the sums to the gradients; 0 if one is not finite. */
static int randomk_receive(const randomk *self)
{
    const tw_scheme *scheme = &self->scheme;
    int finite = 1;
    for (size_t i = 0, at = 0; i < scheme->count; at += self->wanted[i++]) {
        if (!scheme->tensors[i].compressed) continue;
        tw_aligned_tensor tensor = {scheme->gradients[i], scheme->tensors[i].count, self->wanted[i], self->index + at};
        finite &= tw_aligned_spread(&self->sum, at, 1, tensor);
    }
    return finite;
}

/* ---- the rounds -------------------------------------------------------------------------------------------------- */

enum { START_VALUES, FINISH_VALUES, FINISH_LEFTOVERS };

static void start_values(randomk *self, tw_round *round)
{
    tw_scheme *scheme = &self->scheme;
    if (scheme->finite) randomk_take(self);
    tw_aligned_start(&self->sum, scheme->finite, round);
    scheme->account.elements_sent = self->drawn;
    scheme->account.packet_bytes = tw_aligned_bytes(&self->sum);
}

static tw_status randomk_next(tw_scheme *scheme, tw_round *round)
{
    randomk *self = (randomk *)scheme;
    int phase = scheme->phase++;
    if (phase == START_VALUES && self->drawn) {
        start_values(self, round);
        return TW_OK;
    }
    if (phase == FINISH_VALUES) scheme->skipped = !scheme->finite || !randomk_receive(self);
    if (phase == FINISH_LEFTOVERS) scheme->skipped = !tw_dense_unpack(&self->leftovers);
    if (phase == FINISH_LEFTOVERS || scheme->skipped || !self->leftovers.count) {
        round->kind = TW_ROUND_DONE;
        return TW_OK;
    }
    scheme->phase = FINISH_LEFTOVERS;
    tw_leftovers_pack(&self->leftovers, round);
    return TW_OK;
}

static void randomk_revert(tw_scheme *scheme)
{
    randomk *self = (randomk *)scheme;
    float *residual = self->residual;
    tw_dense_revert(&self->leftovers);
    if (!scheme->finite || !self->feedback) return;
    for (size_t i = 0, j = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        for (size_t end = j + self->wanted[i]; j < end; j++) residual[self->index[j]] += self->value[j];
        residual += scheme->tensors[i].count;
    }
}

static tw_status randomk_walk(tw_scheme *scheme, tw_walk *visitor)
{
    randomk *self = (randomk *)scheme;
    float *residual = self->residual;
    for (size_t i = 0; self->feedback && i < scheme->count; i++) {
        const tw_scheme_tensor *tensor = &scheme->tensors[i];
        if (!tensor->compressed) continue;
        TW_TRY(tw_walk_floats(visitor, "residual", tensor, TW_STATE_ADDS, residual));
        residual += tensor->count;
    }
    return tw_dense_walk(&self->leftovers, visitor);
}

static void randomk_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    snprintf(text, capacity, "randomk: %zu of %zu elements", ((const randomk *)scheme)->wanted[tensor],
             scheme->tensors[tensor].count);
}

static void randomk_destroy(tw_scheme *scheme)
{
    randomk *self = (randomk *)scheme;
    tw_free(self->wanted);
    tw_free(self->residual);
    tw_free(self->index);
    tw_free(self->value);
    tw_aligned_destroy(&self->sum);
    tw_dense_destroy(&self->leftovers);
}

const tw_scheme_ops tw_scheme_randomk = {
    .name = "randomk",
    .summary = "elements drawn at random, the same on all ranks: no indices travel",
    .floor_bytes = 12,
    .struct_size = sizeof(randomk),
    TW_OPTIONS(options),
    .create = randomk_create,
    .next = randomk_next,
    .revert = randomk_revert,
    .walk = randomk_walk,
    .plan = randomk_plan,
    .destroy = randomk_destroy,
};
