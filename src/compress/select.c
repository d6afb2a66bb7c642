#include "select.h"

#include "error.h"
#include "half.h"
#include "kernels.h"
#include "memory.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 8192,     /* elements a pass takes at once: its streams stay in the first-level cache's reach */
    LINE = 16,        /* samples are taken a cache line at a time */
    TOP_SAMPLES = 32, /* samples that should lie above the threshold sought */
    MAX_SAMPLES = 65536
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Candidates that fit before a prune: enough that a good guess never prunes, plus the block being read. */
static size_t capacity_for(size_t n, size_t k)
{
    return smaller(n, 2 * k + BLOCK) + BLOCK;
}

tw_status tw_selector_create(tw_selector *selector, size_t n, size_t k)
{
    selector->capacity = capacity_for(n, k);
    TW_TRY(tw_allocate(selector->capacity, sizeof(uint32_t), &selector->index));
    TW_TRY(tw_allocate(selector->capacity, sizeof(float), &selector->value));
    size_t samples = smaller(n / 4, MAX_SAMPLES);
    TW_TRY(tw_allocate(samples, sizeof(float), &selector->sample));
    size_t magnitudes = selector->capacity > samples ? selector->capacity : samples;
    return tw_allocate(magnitudes, sizeof(uint32_t), &selector->magnitude);
}

void tw_selector_destroy(tw_selector *selector)
{
    tw_free(selector->index);
    tw_free(selector->value);
    tw_free(selector->sample);
    tw_free(selector->magnitude);
}

/* The digit of `bits` (11 wide, lowest at `shift`) that the k-th largest of the magnitudes with the prefix seen so far
 * has; *k becomes its rank among the magnitudes that share that digit too. */
static uint32_t digit_of_kth(const uint32_t *magnitude, size_t n, uint32_t prefix, uint32_t prefix_mask, int shift,
                             size_t *k)
{
    size_t histogram[2048] = {0};
    for (size_t i = 0; i < n; i++)
        if ((magnitude[i] & prefix_mask) == prefix) histogram[magnitude[i] >> shift & 2047]++;
    uint32_t digit = 2047;
    while (histogram[digit] < *k) *k -= histogram[digit--];
    return digit;
}

/* The k-th largest (k from 1), by radix: linear whatever the values. The magnitudes of finite floats, read as integers,
 * are in their own order and below 2^31. */
static uint32_t kth_largest(const uint32_t *magnitude, size_t n, size_t k)
{
    uint32_t prefix = 0, mask = 0;
    for (int shift = 22; shift >= 0; shift -= 11) {
        prefix |= digit_of_kth(magnitude, n, prefix, mask, shift, &k) << shift;
        mask |= (uint32_t)2047 << shift;
    }
    return prefix;
}

static void take_magnitudes(uint32_t *magnitude, const float *value, size_t n)
{
    for (size_t i = 0; i < n; i++) magnitude[i] = tw_float_bits(value[i]) & 0x7FFFFFFFu;
}

/* Keeps the `wanted` largest candidates, in their order, and raises the threshold to the least of them. */
static void prune(tw_selector *selector)
{
    if (selector->count <= selector->wanted) return;
    take_magnitudes(selector->magnitude, selector->value, selector->count);
    uint32_t least = kth_largest(selector->magnitude, selector->count, selector->wanted);
    size_t above = 0, kept = 0;
    for (size_t i = 0; i < selector->count; i++) above += selector->magnitude[i] > least;
    size_t ties = selector->wanted - above; /* how many equal to the least still fit */
    for (size_t i = 0; i < selector->count; i++) {
        uint32_t magnitude = selector->magnitude[i];
        if (magnitude < least || (magnitude == least && ties == 0)) continue;
        if (magnitude == least) ties--;
        selector->index[kept] = selector->index[i];
        selector->value[kept++] = selector->value[i];
    }
    selector->count = kept;
    selector->threshold = tw_bits_float(least);
}

/* A threshold that lets through about one and a half times k: from lines spread evenly over the tensor, of the values
 * as they will be after the pass (a threshold from before it would be one step stale). 0 where it does not pay. */
static float sample_threshold(tw_selector *selector, const tw_select_source *source, size_t n, size_t k)
{
    size_t samples = smaller((size_t)((double)TOP_SAMPLES * (double)n / (double)k), MAX_SAMPLES) / LINE * LINE;
    if (samples == 0 || samples > n / 4) return 0;
    size_t lines = samples / LINE, stride = n / lines;
    for (size_t line = 0; line < lines; line++)
        source->peek(source->context, line * stride, LINE, selector->sample + line * LINE);
    take_magnitudes(selector->magnitude, selector->sample, samples);
    double expected = (double)samples * (double)k / (double)n;
    size_t rank = (size_t)ceil(expected + 3 * sqrt(expected)); /* three deviations: seldom too high */
    return rank > samples ? 0 : tw_bits_float(kth_largest(selector->magnitude, samples, rank));
}

static float guess_threshold(tw_selector *selector, const tw_select_source *source, size_t n, size_t k)
{
    const tw_select_hint *hint = selector->hint;
    if (hint && hint->k == k && hint->least > 0) return hint->least * hint->margin;
    return sample_threshold(selector, source, n, k);
}

static float least_magnitude(const float *value, size_t n)
{
    float least = INFINITY;
    for (size_t i = 0; i < n; i++) least = fminf(least, fabsf(value[i]));
    return n ? least : 0;
}

/* A threshold that was too high cost a second look at the values; one far too low, room and pruning. */
static void learn(tw_select_hint *hint, const tw_selector *selector, size_t candidates, int was_too_high)
{
    float margin = hint->k == selector->wanted && hint->margin > 0 ? hint->margin : 0.9F;
    if (was_too_high)
        margin *= 0.8F;
    else if (candidates > 3 * selector->wanted)
        margin = fminf(margin * 1.05F, 0.97F);
    hint->k = selector->wanted;
    hint->margin = fmaxf(margin, 0.1F);
    hint->least = selector->count < selector->wanted ? 0 : least_magnitude(selector->value, selector->count);
}

static size_t run_pass(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    const tw_select_source *source = context;
    return source->pass(source->context, first, n, threshold, index, value);
}

static size_t run_reread(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    const tw_select_source *source = context;
    return tw_kernels_best()->select(source->values + first, n, threshold, (uint32_t)first, index, value);
}

typedef size_t (*block_pass)(void *, size_t, size_t, float, uint32_t *, float *);

static void sweep(tw_selector *selector, block_pass pass, const tw_select_source *source, size_t n, float threshold)
{
    selector->count = 0;
    selector->threshold = threshold;
    for (size_t first = 0; first < n; first += BLOCK) {
        if (selector->capacity - selector->count < BLOCK) prune(selector);
        selector->count += pass((void *)source, first, smaller(BLOCK, n - first), selector->threshold,
                                selector->index + selector->count, selector->value + selector->count);
    }
}

/* The candidates' largest, for the caller. */
static size_t hand_over(tw_selector *selector, uint32_t *index, float *value)
{
    prune(selector);
    memcpy(index, selector->index, selector->count * sizeof *index);
    memcpy(value, selector->value, selector->count * sizeof *value);
    return selector->count;
}

size_t tw_select_top(tw_selector *selector, const tw_select_source *source, size_t n, size_t k, uint32_t *index,
                     float *value)
{
    float threshold = guess_threshold(selector, source, n, k);
    selector->wanted = k;
    sweep(selector, run_pass, source, n, threshold);
    int too_high = selector->count < k && threshold > 0;
    if (too_high) sweep(selector, run_reread, source, n, threshold / 4);
    if (too_high && selector->count < k) sweep(selector, run_reread, source, n, 0);
    size_t candidates = selector->count, count = hand_over(selector, index, value);
    if (selector->hint) learn(selector->hint, selector, candidates, too_high);
    return count;
}

size_t tw_select_above(tw_selector *selector, const tw_select_source *source, size_t n, size_t k, float threshold,
                       uint32_t *index, float *value)
{
    selector->wanted = k;
    sweep(selector, run_pass, source, n, threshold);
    return hand_over(selector, index, value);
}

float tw_select_kth(tw_selector *selector, const float *value, size_t n, size_t k)
{
    take_magnitudes(selector->magnitude, value, n);
    return tw_bits_float(kth_largest(selector->magnitude, n, k));
}
