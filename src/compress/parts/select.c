#include "select.h"

#include "error.h"
#include "half.h"
#include "kernels.h"
#include "memory.h"
#include "smaller.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = TW_SELECT_ROOM, /* elements a pass takes at once: its streams stay in the first-level cache's reach */
    LINE = 16,              /* samples are taken a cache line at a time */
    TOP_SAMPLES = 32,       /* samples that should lie above the threshold sought */
    MAX_SAMPLES = 65536,
    PARTS = 2048 /* of a range: their counters stay in the first-level cache */
};

static const float FIRST_MARGIN = 0.9F, LEAST_MARGIN = 0.1F, MOST_MARGIN = 0.97F, MOST_GROWTH = 2;

/* Candidates that fit before a prune: enough that a good guess never prunes, plus the block being read. */
static size_t capacity_for(size_t n, size_t k)
{
    return tw_smaller(n, 2 * k + BLOCK) + BLOCK;
}

tw_status tw_selector_create(tw_selector *selector, size_t n, size_t k)
{
    selector->capacity = capacity_for(n, k);
    TW_TRY(tw_allocate_unset(selector->capacity * sizeof(uint32_t), &selector->index));
    TW_TRY(tw_allocate_unset(selector->capacity * sizeof(float), &selector->value));
    size_t samples = tw_smaller(n / 4, MAX_SAMPLES);
    TW_TRY(tw_allocate_unset(samples * sizeof(float), &selector->sample));
    size_t magnitudes = selector->capacity > samples ? selector->capacity : samples;
    return tw_allocate_unset(magnitudes * sizeof(uint32_t), &selector->magnitude);
}

void tw_selector_destroy(tw_selector *selector)
{
    tw_free(selector->index);
    tw_free(selector->value);
    tw_free(selector->sample);
    tw_free(selector->magnitude);
}

static void find_range(const uint32_t *magnitude, size_t n, uint32_t *low, uint32_t *high)
{
    uint32_t least = UINT32_MAX, most = 0;
    for (size_t i = 0; i < n; i++) {
        least = magnitude[i] < least ? magnitude[i] : least;
        most = magnitude[i] > most ? magnitude[i] : most;
    }
    *low = least;
    *high = most;
}

/* The part, counted in steps of 2^shift from `low`, in which the k-th largest lies; *k becomes its rank there. */
static uint32_t part_of_kth(const uint32_t *magnitude, size_t n, uint32_t low, int shift, size_t *k)
{
    uint32_t histogram[PARTS] = {0}, part = PARTS - 1;
    for (size_t i = 0; i < n; i++) histogram[(magnitude[i] - low) >> shift]++;
    while (histogram[part] < *k) *k -= histogram[part--];
    return part;
}

/* Without a branch, which none could foretell. */
static size_t keep_part(uint32_t *magnitude, size_t n, uint32_t low, int shift, uint32_t part)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t x = magnitude[i];
        magnitude[kept] = x;
        kept += (x - low) >> shift == part;
    }
    return kept;
}

/* The k-th largest (k from 1), linear whatever the values: each round cuts what they span into PARTS and goes on in one
 * of them. *k becomes its rank among its equals. Destroys the array. The magnitudes of finite floats, read as integers,
 * are in their own order. */
static uint32_t kth_largest(uint32_t *magnitude, size_t n, size_t *k)
{
    uint32_t low, high;
    for (find_range(magnitude, n, &low, &high); low < high; find_range(magnitude, n, &low, &high)) {
        int shift = 0;
        while ((high - low) >> shift >= PARTS) shift++;
        uint32_t part = part_of_kth(magnitude, n, low, shift, k);
        n = keep_part(magnitude, n, low, shift, part);
    }
    return low;
}

static uint32_t select_magnitude_of(float value)
{
    return tw_float_bits(value) & 0x7FFFFFFFu;
}

static void take_magnitudes(uint32_t *magnitude, const float *value, size_t n)
{
    for (size_t i = 0; i < n; i++) magnitude[i] = select_magnitude_of(value[i]);
}

void tw_select_prune(tw_selector *selector)
{
    if (selector->count <= selector->wanted) return;
    take_magnitudes(selector->magnitude, selector->value, selector->count);
    size_t ties = selector->wanted, end = 0, kept = 0; /* end: behind the last that fits of those equal to the least */
    uint32_t least = kth_largest(selector->magnitude, selector->count, &ties);
    for (; ties > 0; end++) ties -= select_magnitude_of(selector->value[end]) == least;
    for (size_t i = 0; i < selector->count; i++) {
        float value = selector->value[i];
        selector->index[kept] = selector->index[i];
        selector->value[kept] = value;
        kept += select_magnitude_of(value) >= least + (i >= end);
    }
    selector->count = kept;
    selector->threshold = tw_bits_float(least);
}

/* A threshold that lets through about one and a half times k: from lines spread evenly over the tensor, of the values
 * as they will be after the pass (a threshold from before it would be one step stale). 0 where it does not pay. */
static float sample_threshold(tw_selector *selector, const tw_select_source *source, size_t n, size_t k)
{
    size_t samples = tw_smaller((size_t)((double)TOP_SAMPLES * (double)n / (double)k), MAX_SAMPLES) / LINE * LINE;
    if (samples == 0 || samples > n / 4) return 0;
    size_t lines = samples / LINE, stride = n / lines;
    for (size_t line = 0; line < lines; line++)
        source->peek(source->context, line * stride, LINE, selector->sample + line * LINE);
    take_magnitudes(selector->magnitude, selector->sample, samples);
    double expected = (double)samples * (double)k / (double)n;
    size_t rank = (size_t)ceil(expected + 3 * sqrt(expected)); /* three deviations: seldom too high */
    return rank > samples ? 0 : tw_bits_float(kth_largest(selector->magnitude, samples, &rank));
}

static float guess_threshold(tw_selector *selector, const tw_select_source *source, size_t n, size_t k)
{
    const tw_select_hint *hint = selector->hint;
    if (hint && hint->k == k && hint->least > 0) return hint->least * hint->growth * hint->margin;
    return source->peek ? sample_threshold(selector, source, n, k) : 0;
}

static float least_magnitude(const float *value, size_t n)
{
    float least = INFINITY;
    for (size_t i = 0; i < n; i++) least = fminf(least, fabsf(value[i]));
    return n ? least : 0;
}

/* A threshold that was too high cost a second look at the values; one far too low, room and pruning. Residuals fill
 * from nothing: growth is what the last two steps agree on. */
static void select_learn(tw_select_hint *hint, const tw_selector *selector, int was_too_high)
{
    tw_select_hint before =
        hint->k == selector->wanted && hint->margin > 0 ? *hint : (tw_select_hint){.ratio = 1, .margin = FIRST_MARGIN};
    float least = selector->count < selector->wanted ? 0 : least_magnitude(selector->value, selector->count);
    float ratio = before.least > 0 ? least / before.least : 1, margin = before.margin;
    if (was_too_high)
        margin *= 0.8F;
    else if (selector->listed > 3 * selector->wanted)
        margin *= 1.02F;
    *hint = (tw_select_hint){.k = selector->wanted,
                             .least = least,
                             .ratio = ratio,
                             .growth = fminf(fmaxf(fminf(ratio, before.ratio), 1), MOST_GROWTH),
                             .margin = fminf(fmaxf(margin, LEAST_MARGIN), MOST_MARGIN)};
}

typedef size_t (*block_pass)(void *context, size_t, size_t, float, uint32_t *, float *);

static void sweep(tw_selector *selector, block_pass pass, void *context, size_t n, float threshold)
{
    selector->count = selector->listed = 0;
    selector->threshold = threshold;
    for (size_t first = 0; first < n; first += BLOCK) {
        if (selector->capacity - selector->count < BLOCK) tw_select_prune(selector);
        size_t found = pass(context, first, tw_smaller(BLOCK, n - first), selector->threshold,
                            selector->index + selector->count, selector->value + selector->count);
        selector->count += found;
        selector->listed += found;
    }
}

size_t tw_select_hand_over(tw_selector *selector, uint32_t *index, float *value)
{
    tw_select_prune(selector);
    memcpy(index, selector->index, selector->count * sizeof *index);
    memcpy(value, selector->value, selector->count * sizeof *value);
    return selector->count;
}

static size_t select_look(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    const float *values = context;
    return tw_kernels_best()->select(values + first, n, threshold, (uint32_t)first, index, value);
}

static void select_peek(void *context, size_t first, size_t n, float *dst)
{
    memcpy(dst, (const float *)context + first, n * sizeof *dst);
}

tw_select_source tw_select_from(float *values)
{
    return (tw_select_source){values, select_look, select_peek, select_look};
}

size_t tw_select_top(tw_selector *selector, const tw_select_source *source, size_t n, size_t k, uint32_t *index,
                     float *value)
{
    return tw_select_above(selector, source, n, k, 0, index, value);
}

size_t tw_select_above(tw_selector *selector, const tw_select_source *source, size_t n, size_t k, float floor,
                       uint32_t *index, float *value)
{
    float threshold = fmaxf(guess_threshold(selector, source, n, k), floor);
    selector->wanted = k;
    sweep(selector, source->pass, source->context, n, threshold);
    int too_high = selector->count < k && threshold > floor;
    if (too_high) sweep(selector, source->look, source->context, n, fmaxf(threshold / 4, floor));
    if (too_high && selector->count < k) sweep(selector, source->look, source->context, n, floor);
    size_t count = tw_select_hand_over(selector, index, value);
    if (selector->hint) select_learn(selector->hint, selector, too_high);
    return count;
}

float tw_select_kth(tw_selector *selector, const float *value, size_t n, size_t k)
{
    take_magnitudes(selector->magnitude, value, n);
    return tw_bits_float(kth_largest(selector->magnitude, n, &k));
}
