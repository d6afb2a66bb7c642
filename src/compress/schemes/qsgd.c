/* qsgd - quantised SGD (Alistarh, Grubic, Li, Tomioka, Vojnovic; NIPS 2017, arXiv 1610.02132).
 *
 * Each bucket of elements is divided by its norm; an element becomes one of 2 s + 1 levels, l/s for l = -s .. s, the
 * one above or the one below it at random so that it is right on average, with s = 2^(bits-1) - 1. A bucket sends the
 * norm and a code of `bits` bits an element. The norm is the largest magnitude by default, as implementations have it:
 * at 512 elements in a bucket the Euclidean norm, the paper's, is some seven times that, and so are the levels' steps.
 * With norm=l2 the variance is at most min(n / s^2, sqrt(n) / s) |v|^2 (lemma 3.1). The paper's Elias code, which gains
 * where most levels are 0, is not here: codes have a fixed width. */
#include "quantised.h"

#include "error.h"
#include "smaller.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct qsgd {
    tw_quantised quantised;
    int64_t bits;
    int bucket, norm;
} qsgd;

enum { NORM_MAX, NORM_L2, MOST_BUCKETS = TW_QUANTISED_BLOCK / TW_LEAST_BUCKET /* of a block */ };

#define LEAST_STEP 0x1p-100
#define MOST_STEP 0x1p119 /* with a code of 8 bits, still a number */

static const tw_option options[] = {
    {"bits", TW_OPTION_INTEGER, offsetof(qsgd, bits), "4", 2, 8, NULL, "of an element's code: 2^bits - 1 levels"},
    {"bucket", TW_OPTION_CHOICE, offsetof(qsgd, bucket), "512", 0, 0, "128|256|512|1024", "elements that share a norm"},
    {"norm", TW_OPTION_CHOICE, offsetof(qsgd, norm), "max", 0, 0, "max|l2",
     "what a bucket is divided by; l2, the paper's, needs more bits"},
    {"feedback", TW_OPTION_SWITCH, offsetof(tw_quantised, feedback), "off", 0, 0, NULL,
     "add what rounding lost to the next step's gradient; with norm=l2 that takes bits enough for the bucket"},
    TW_OPTION_SEED,
    TW_OPTION_EXCHANGE,
};

static size_t bucket_of(const tw_scheme *scheme)
{
    return (size_t)TW_LEAST_BUCKET << ((const qsgd *)scheme)->bucket;
}

/* s: levels go from -s to s. */
static uint32_t levels_of(const tw_scheme *scheme)
{
    return (1u << (((const qsgd *)scheme)->bits - 1)) - 1;
}

/* A section is the step between two levels, an fp32 a bucket, then the codes. */
static size_t head_bytes(const tw_scheme *scheme, size_t n)
{
    return (n + bucket_of(scheme) - 1) / bucket_of(scheme) * sizeof(float);
}

static size_t qsgd_section_bytes(const tw_scheme *scheme, size_t n)
{
    return head_bytes(scheme, n) + (n * (size_t)((const qsgd *)scheme)->bits + 7) / 8;
}

/* No less than LEAST_STEP, so that its inverse is a number; rounding at random is right even then. Enlarged by the
 * little that keeps n values * scale, divided by it and rounded, within the levels. */
static float find_step(const qsgd *self, const tw_quantised_block *block, size_t at, size_t n)
{
    double norm = tw_quantised_peak(block, at, n);
    if (norm == 0) return 0;
    if (self->norm == NORM_L2) norm = sqrt(tw_kernels_best()->sum_squares(block->values + at, n));
    double step = norm * block->scale / levels_of(&self->quantised.scheme) * (1 + 0x1p-22);
    return (float)fmin(fmax(step, LEAST_STEP), MOST_STEP);
}

/* Where in a section of n the codes from `first` on begin. */
static size_t codes_at(const tw_scheme *scheme, size_t n, size_t first)
{
    return head_bytes(scheme, n) + first / 8 * (size_t)((const qsgd *)scheme)->bits;
}

static void qsgd_encode_block(const tw_scheme *scheme, const tw_quantised_block *block, unsigned char *section)
{
    const qsgd *self = (const qsgd *)scheme;
    float inverse[MOST_BUCKETS];
    tw_levels levels = {(unsigned)self->bits, bucket_of(scheme), inverse};
    unsigned char *steps = section + block->first / levels.bucket * sizeof(float);
    for (size_t at = 0, b = 0; at < block->count; at += levels.bucket, b++) {
        size_t n = tw_smaller(levels.bucket, block->count - at);
        float step = find_step(self, block, at, n);
        tw_quantised_put_float(steps + b * sizeof step, step);
        inverse[b] = step > 0 ? 1 / step : 0;
    }
    tw_kernels_best()->quantise->send_levels(section + codes_at(scheme, block->n, block->first), block->values,
                                             block->count, block->scale, &levels, block->noise);
}

static const char *qsgd_check(const tw_scheme *scheme, const unsigned char *section, size_t n, float *largest)
{
    float most = 0;
    for (size_t at = 0; at < head_bytes(scheme, n); at += sizeof most) {
        float step = tw_quantised_get_float(section + at);
        if (!(step >= 0 && step <= MOST_STEP)) return "a bucket's step between levels is negative or too large";
        most = fmaxf(most, step);
    }
    *largest = most * (float)(levels_of(scheme) + 1); /* one code is above the highest level */
    return NULL;
}

static void qsgd_add(const tw_scheme *scheme, const unsigned char *section, size_t n, size_t first,
                     const tw_addition *to)
{
    float step[MOST_BUCKETS];
    tw_levels levels = {(unsigned)((const qsgd *)scheme)->bits, bucket_of(scheme), step};
    size_t buckets = (to->n + levels.bucket - 1) / levels.bucket;
    memcpy(step, section + first / levels.bucket * sizeof *step, buckets * sizeof *step);
    tw_kernels_best()->quantise->add_levels(to, section + codes_at(scheme, n, first), &levels);
}

static const tw_quantised_ops sections = {
    .block = TW_QUANTISED_BLOCK,
    .bytes = qsgd_section_bytes,
    .encode_block = qsgd_encode_block,
    .encode = tw_quantised_encode_blocks,
    .check = qsgd_check,
    .add = qsgd_add,
};

/* Rounding n elements loses at most n/4 steps squared, and with norm=l2 a step is |v|/s: feedback shrinks what is lost
 * if n/4 < s^2. If not, the residual may grow by more than was sent of it, step after step. */
static tw_status check_feedback(const qsgd *self)
{
    size_t bucket = bucket_of(&self->quantised.scheme), levels = levels_of(&self->quantised.scheme);
    if (!self->quantised.feedback || self->norm != NORM_L2 || bucket < 4 * levels * levels) return TW_OK;
    return tw_fail(TW_ERROR_SPEC,
                   "feedback=on with norm=l2, bits=%" PRId64
                   " and bucket=%zu: the residual would grow without end; take more "
                   "bits, a smaller bucket or norm=max",
                   self->bits, bucket);
}

static tw_status qsgd_create(tw_scheme *scheme)
{
    TW_TRY(check_feedback((const qsgd *)scheme));
    return tw_quantised_create(scheme, &sections);
}

const tw_scheme_ops tw_scheme_qsgd = {
    .name = "qsgd",
    .summary = "QSGD: each element at random to one of a few levels, right on average",
    .one_pass = 1,
    .floor_bytes = 5, /* the gradient, and half a byte */
    .struct_size = sizeof(qsgd),
    TW_OPTIONS(options),
    .create = qsgd_create,
    TW_QUANTISED_STEPS,
};
