/* Range coding of gaps by their size, under a model that learns. Gradients cluster: whole rows of a matrix are busy and
 * others silent, so gaps are both shorter and longer than chance would have them, and a model of how often each size
 * occurs gets below log2 C(n, k), the least that k indices without any pattern cost. Knowing the gaps before one was
 * found to add next to nothing on real gradients.
 *
 * The gap g becomes v = g + 1. Its class is the half octave it lies in, [2^c, 1.5 * 2^c) or [1.5 * 2^c, 2 * 2^c): only
 * that is modelled, the bits below are sent as they are. The model begins as if it had seen 32 gaps of k indices strewn
 * by chance, so that small supports need not pay for learning it. All of it is integer arithmetic: both sides
 * must agree to the last bit. */
#include "index_code.h"
#include "range_coder.h"

enum {
    MOST_CLASSES = 63,
    SCALE = 12,                /* frequencies add up to 2^SCALE */
    SEEN = 1 << 13,            /* the weight of one gap seen */
    PRIOR_SHIFT = 14,          /* the prior weighs 2^(32 - 14), 32 gaps */
    MOST_WEIGHT = 2048 * SEEN, /* then all weights are halved: the model follows a tensor's changes */
    MOST_PAUSE = 255,          /* gaps that the frequencies may stay as they are, ... */
    PAUSE_SHIFT = 2,           /* and as a part of the gaps seen: a quarter */
};

typedef struct model {
    unsigned classes;
    size_t gaps, next; /* gaps seen, and when the frequencies are counted up next */
    uint32_t weight[MOST_CLASSES];
    uint16_t start[MOST_CLASSES + 1]; /* class i has the parts start[i] .. start[i + 1] - 1 of 2^SCALE */
} model;

static uint64_t times(uint64_t a, uint64_t b)
{
    return a * b >> 32;
}

/* Chance: an element is skipped with probability q = 1 - k/n, and v exceeds x with q^x. Probabilities are 2^32nds. */
static void fill_prior(model *to, size_t n, size_t k)
{
    uint64_t power = ((uint64_t)(n - k) << 32) / n; /* q^(2^(c - 1)) in what follows */
    uint64_t beyond = power;                        /* q^(2^c - 1): that v is 2^c or more */
    to->weight[0] = (uint32_t)((((uint64_t)1 << 32) - beyond) >> PRIOR_SHIFT);
    for (unsigned i = 1; i < to->classes; i += 2) {
        uint64_t middle = times(beyond, power);
        power = times(power, power);
        uint64_t end = times(beyond, power);
        to->weight[i] = (uint32_t)((beyond - middle) >> PRIOR_SHIFT);
        to->weight[i + 1] = (uint32_t)((middle - end) >> PRIOR_SHIFT);
        beyond = end;
    }
}

static uint64_t total_weight(const model *of)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < of->classes; i++) total += of->weight[i];
    return total;
}

/* Makes frequencies of the weights, every one at least 1. */
static void count_up(model *of)
{
    uint64_t total = total_weight(of);
    if (total > MOST_WEIGHT) {
        for (unsigned i = 0; i < of->classes; i++) of->weight[i] /= 2;
        total = total_weight(of);
    }
    uint64_t factor = ((uint64_t)((1 << SCALE) - of->classes) << 32) / (total + 1), below = 0;
    for (unsigned i = 0; i < of->classes; i++) {
        of->start[i] = (uint16_t)(i + times(below, factor));
        below += of->weight[i];
    }
    of->start[of->classes] = 1 << SCALE;
    size_t pause = of->gaps >> PAUSE_SHIFT;
    of->next = of->gaps + 1 + (pause < MOST_PAUSE ? pause : MOST_PAUSE);
}

static model make_model(size_t n, size_t k)
{
    model made = {.classes = 2 * tw_floor_log2(n) + 1};
    fill_prior(&made, n, k);
    count_up(&made);
    return made;
}

/* A quarter of what was seen is credited to the octave's other half, which is about as likely. 1 if the frequencies
 * have changed. */
static int adaptive_learn(model *from, unsigned class)
{
    unsigned other = class ? ((class - 1) ^ 1) + 1 : 0;
    from->weight[class] += SEEN - SEEN / 4;
    from->weight[other] += SEEN / 4;
    if (++from->gaps < from->next) return 0;
    count_up(from);
    return 1;
}

static unsigned class_of(uint32_t v)
{
    unsigned octave = tw_floor_log2(v);
    return 2 * octave - (octave != 0) + (2 * v >> octave & 1);
}

/* The bits of v that its class does not tell. */
static unsigned plain_bits(unsigned class)
{
    return (class - (class != 0)) / 2;
}

static uint32_t class_start(unsigned class)
{
    return class ? (uint32_t)(2 + (class - 1) % 2) << plain_bits(class) : 1;
}

static inline void put_gap(tw_range_encoder *encoder, model *by, uint32_t v)
{
    unsigned class = class_of(v), plain = plain_bits(class);
    tw_range_put(encoder, SCALE, by->start[class], (uint64_t)by->start[class + 1] - by->start[class]);
    tw_range_put(encoder, plain, v & (((uint32_t)1 << plain) - 1), 1);
    adaptive_learn(by, class);
}

/* The bytes of the block, and into dst the block itself unless that is NULL. */
static inline size_t adaptive_encode(unsigned char *dst, size_t n, size_t k, const uint32_t *index)
{
    model by = make_model(n, k);
    tw_range_encoder encoder = tw_range_encode(dst);
    uint32_t end = 0; /* the element behind the index before */
    for (size_t i = 0; i < k; end = index[i++] + 1) put_gap(&encoder, &by, index[i] - end + 1);
    return tw_range_flush(&encoder);
}

static size_t adaptive_bits(size_t n, size_t k, const uint32_t *index, unsigned *parameter)
{
    *parameter = 0;
    return 8 * adaptive_encode(NULL, n, k, index);
}

/* A class costs SCALE bits at the most. The bits below it, log2 v each, are the most when all v are alike, n/k. A third
 * of a bit may be lost to rounding, a byte to the end. All that, k * (SCALE + 1/3 + log2(n/k)), grows with k, so that
 * fewer indices fit too; what is returned, with the logarithm rounded, need not grow. */
static size_t adaptive_bound(size_t n, size_t k)
{
    return k * (SCALE + 1 + tw_floor_log2(n / k) + 1) + 16;
}

static void adaptive_write(unsigned char *dst, size_t bytes, size_t n, size_t k, const uint32_t *index,
                           unsigned parameter)
{
    (void)bytes, (void)parameter;
    adaptive_encode(dst, n, k, index);
}

/* The class of each of 2^SCALE parts. */
static void fill_parts(unsigned char *parts, const model *of)
{
    for (unsigned i = 0; i < of->classes; i++) memset(parts + of->start[i], (int)i, of->start[i + 1] - of->start[i]);
}

/* NULL, or what is wrong. */
static const char *take_gap(tw_range_decoder *decoder, const model *by, const unsigned char *parts, unsigned *class,
                            uint64_t *v)
{
    static const char *const never_written = "its index block holds a number that no encoder writes";
    uint64_t part = tw_range_see(decoder, SCALE);
    if (part >> SCALE) return never_written;
    *class = parts[part];
    tw_range_take(decoder, SCALE, by->start[*class], (uint64_t)by->start[*class + 1] - by->start[*class]);
    unsigned plain = plain_bits(*class);
    uint64_t low = tw_range_see(decoder, plain);
    if (low >> plain) return never_written;
    tw_range_take(decoder, plain, low, 1);
    *v = class_start(*class) + low;
    return NULL;
}

static const char *adaptive_read(const unsigned char *src, size_t bytes, size_t n, size_t k, uint32_t *index)
{
    unsigned char parts[1 << SCALE];
    model by = make_model(n, k);
    tw_range_decoder decoder = tw_range_decode(src, bytes);
    uint64_t end = 0, v; /* end: the element behind the index before */
    fill_parts(parts, &by);
    for (size_t i = 0; i < k; i++) {
        unsigned class;
        const char *wrong = take_gap(&decoder, &by, parts, &class, &v);
        if (wrong) return wrong;
        end += v;
        if (end > n) return "an index lies beyond the tensor";
        index[i] = (uint32_t)(end - 1);
        if (adaptive_learn(&by, class)) fill_parts(parts, &by);
    }
    return tw_range_ended(&decoder) ? NULL : "its index block has another length, or another end, than it should";
}

const tw_index_code tw_index_adaptive = {adaptive_bits, adaptive_bound, adaptive_write, adaptive_read};
