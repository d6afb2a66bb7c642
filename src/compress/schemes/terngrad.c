/* terngrad - ternary gradients (Wen, Xu, Yan, Wu, Wang, Chen, Li; NIPS 2017, arXiv 1705.07878).
 *
 * Per tensor: elements beyond clip * sigma are cut to it, with sigma^2 the mean of g^2 (about zero, as the ternary
 * values are); s is the largest magnitude then; an element becomes s * sign(g) with probability |g| / s, or else 0. So
 * it is right on average but for the cut. Five of these values go into a byte. Each worker has its own s: the paper's
 * maximum over all workers, which keeps the sum ternary on the way back from a server, costs a round and variance.
 *
 * There is no error feedback: such a rounding may lose as much as there was, and a residual would grow. Two passes over
 * the gradient are needed: s must be known before the first element is rounded. */
#include "quantised.h"

#include "smaller.h"

#include <float.h>
#include <math.h>

typedef struct terngrad {
    tw_quantised quantised;
    double clip;
} terngrad;

static const tw_option options[] = {
    {"clip", TW_OPTION_REAL, offsetof(terngrad, clip), "2.5", 0, 1e9, NULL,
     "cut elements at so many standard deviations of their tensor; 0: do not"},
    TW_OPTION_SEED,
    TW_OPTION_EXCHANGE,
};

#define LEAST_LIMIT 0x1p-100

enum { BLOCK = TW_QUANTISED_BLOCK / TW_TRIT_GROUP * TW_TRIT_GROUP };

/* A section is s, then the trits. */
static size_t terngrad_section_bytes(const tw_scheme *scheme, size_t n)
{
    (void)scheme;
    return sizeof(float) + (n + 4) / 5;
}

/* The s of n elements, before they are scaled. */
static double find_limit(tw_quantised *quantised, const tw_quantised_part *part)
{
    const terngrad *self = (const terngrad *)quantised;
    const tw_kernels *kernels = tw_kernels_best();
    double squares = 0;
    float peak = 0;
    for (size_t first = 0, count; first < part->n; first += count) {
        count = tw_smaller(part->n - first, BLOCK);
        tw_quantised_look(quantised, part, first, count);
        squares += kernels->sum_squares(part->values + first, count);
        peak = fmaxf(peak, kernels->quantise->peak(part->values + first, count));
    }
    double cut = self->clip * sqrt(squares / (double)part->n);
    return cut > 0 && cut < peak ? cut : peak;
}

static void terngrad_encode_block(const tw_scheme *scheme, const tw_quantised_block *block, unsigned char *section)
{
    const tw_quantise_rows *rows = tw_kernels_best()->quantise;
    float limit = tw_quantised_get_float(section);
    (void)scheme;
    rows->send_trits(section + sizeof limit + block->first / 5, block->values, block->count, block->scale,
                     limit > 0 ? 1 / limit : 0, block->noise);
}

/* s is no less than LEAST_LIMIT, so that its inverse is a number; rounding at random is right even then. */
static void terngrad_encode(tw_quantised *quantised, const tw_quantised_part *part, unsigned char *section)
{
    double limit = part->scale * find_limit(quantised, part);
    tw_quantised_put_float(section, limit > 0 ? (float)fmax(limit, LEAST_LIMIT) : 0);
    tw_quantised_part seen = *part;
    seen.unseen = NULL;
    tw_quantised_encode_blocks(quantised, &seen, section);
}

static const char *terngrad_check(const tw_scheme *scheme, const unsigned char *section, size_t n, float *largest)
{
    const unsigned char *trits = section + sizeof(float);
    int wrong = 0;
    for (size_t i = 0; i < terngrad_section_bytes(scheme, n) - sizeof(float); i++) wrong |= trits[i] > 242;
    *largest = tw_quantised_get_float(section);
    if (!(*largest >= 0 && *largest <= FLT_MAX)) return "its scale is negative or not finite";
    return wrong ? "a byte is not five trits" : NULL;
}

static void terngrad_add(const tw_scheme *scheme, const unsigned char *section, size_t n, size_t first,
                         const tw_addition *to)
{
    (void)scheme;
    (void)n;
    tw_kernels_best()->quantise->add_trits(to, section + sizeof(float) + first / 5, tw_quantised_get_float(section));
}

static const tw_quantised_ops sections = {
    .block = BLOCK,
    .bytes = terngrad_section_bytes,
    .encode_block = terngrad_encode_block,
    .encode = terngrad_encode,
    .check = terngrad_check,
    .add = terngrad_add,
};

static tw_status terngrad_create(tw_scheme *scheme)
{
    return tw_quantised_create(scheme, &sections);
}

const tw_scheme_ops tw_scheme_terngrad = {
    .name = "terngrad",
    .summary = "TernGrad: each element at random to -s, 0 or s, right on average",
    .one_pass = 1,
    .floor_bytes = 8, /* the gradient twice */
    .struct_size = sizeof(terngrad),
    TW_OPTIONS(options),
    .create = terngrad_create,
    TW_QUANTISED_STEPS,
};
