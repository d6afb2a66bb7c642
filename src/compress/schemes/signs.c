/* sign - EF-signSGD: signs and one magnitude, with error feedback (Karimireddy, Rebjock, Stich, Jaggi; ICML 2019,
 * arXiv 1901.09847).
 *
 * Per tensor of n elements: p = e + g; send s = |p|_1 / n and the signs of p; e = p - s sign(p). An element that is 0
 * counts as positive. Without the feedback signs may lead uphill; it is not an option here. The paper feeds back
 * learning_rate * gradient; here the gradient itself, so that the rate belongs to the optimiser.
 *
 * onebit - 1-bit SGD: signs and two reconstruction values, with error feedback (Seide, Fu, Droppo, Li, Yu; Interspeech
 * 2014).
 *
 * Per tensor: p = e + g; send the signs of p, the mean of its negative elements and the mean of the others, which are
 * what the receiver puts for them; e = p - sent. These two values make the squared error the least that one bit with a
 * threshold at 0 allows. The paper has two values a column of each matrix; here a tensor has two.
 *
 * Memory is passed over once. The residual keeps p = e + a*g itself, and `sent` what its elements were sent as: the
 * next step finds e = p - (p < 0 ? sent[1] : sent[0]) while it adds the gradient, and to take a step back is to forget
 * what was sent. */
#include "quantised.h"

#include "error.h"
#include "memory.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct signs {
    tw_quantised quantised;
    int means; /* that travel: 1, of the magnitudes; or 2, of the elements that are not negative and of the others */
    float (*sent)[2]; /* a part's elements that were not negative, and that were, when it was encoded last */
} signs;

static const tw_option options[] = {TW_OPTION_EXCHANGE};

/* A section is the means, then the packed signs. */
static size_t signs_head_bytes(const tw_scheme *scheme)
{
    return (size_t)((const signs *)scheme)->means * sizeof(float);
}

static size_t signs_bytes(const tw_scheme *scheme, size_t n)
{
    return signs_head_bytes(scheme) + (n + 7) / 8;
}

/* What a bit of 0 and one of 1 stand for. */
static void read_means(const tw_scheme *scheme, const unsigned char *section, float mean[2])
{
    mean[0] = tw_quantised_get_float(section);
    mean[1] = ((const signs *)scheme)->means == 2 ? tw_quantised_get_float(section + sizeof(float)) : -mean[0];
}

/* The mean as a float, which a sum of many can only leave if something has gone wrong before. */
static float signs_mean_of(double sum, size_t count)
{
    return count ? (float)fmax(fmin(sum / (double)count, FLT_MAX), -FLT_MAX) : 0;
}

static void write_means(const signs *self, size_t n, tw_sign_sums *sums, unsigned char *section)
{
    double positive = tw_kernels_fold(sums->positive), negative = tw_kernels_fold(sums->negative);
    if (self->means == 2) {
        tw_quantised_put_float(section, signs_mean_of(positive, n - sums->negatives));
        tw_quantised_put_float(section + sizeof(float), signs_mean_of(negative, sums->negatives));
    } else {
        tw_quantised_put_float(section, signs_mean_of(positive - negative, n));
    }
}

static void signs_encode(tw_quantised *quantised, const tw_quantised_part *part, unsigned char *section)
{
    const tw_scheme *scheme = &quantised->scheme;
    signs *self = (signs *)quantised;
    float *sent = self->sent[part->index];
    tw_sign_sums sums = {0};
    tw_kernels_best()->quantise->send_signs(part->residual, part->values, part->n, part->scale, sent,
                                            section + signs_head_bytes(scheme), &sums);
    write_means(self, part->n, &sums, section);
    read_means(scheme, section, sent);
}

/* Leaves in the residual what the next step would find. */
static void subtract_sent(tw_quantised *quantised, const tw_quantised_part *part)
{
    float *sent = ((signs *)quantised)->sent[part->index];
    for (size_t i = 0; i < part->n; i++) part->residual[i] -= sent[part->residual[i] < 0];
    memset(sent, 0, 2 * sizeof *sent);
}

static const char *signs_check(const tw_scheme *scheme, const unsigned char *section, size_t n, float *largest)
{
    float mean[2];
    (void)n;
    read_means(scheme, section, mean);
    *largest = fmaxf(mean[0], -mean[1]);
    int sound = mean[0] >= 0 && mean[1] <= 0 && *largest <= FLT_MAX; /* false for NaN */
    return sound ? NULL : "a mean is not finite or of the wrong sign";
}

static void signs_add(const tw_scheme *scheme, const unsigned char *section, size_t n, size_t first, size_t count,
                      float *sum)
{
    float mean[2];
    (void)n;
    read_means(scheme, section, mean);
    tw_kernels_best()->quantise->add_signs(sum, section + signs_head_bytes(scheme) + first / 8, count, mean);
}

static const tw_quantised_ops sections = {
    .block = TW_QUANTISED_BLOCK,
    .bytes = signs_bytes,
    .encode = signs_encode,
    .close = subtract_sent,
    .check = signs_check,
    .add = signs_add,
};

static tw_status create_signs(tw_scheme *scheme, int means)
{
    signs *self = (signs *)scheme;
    self->means = means;
    TW_TRY(tw_quantised_create(scheme, &sections, 1));
    return tw_allocate(tw_quantised_parts(&self->quantised), sizeof *self->sent, &self->sent);
}

static void signs_destroy(tw_scheme *scheme)
{
    signs *self = (signs *)scheme;
    tw_free(self->sent);
    tw_quantised_destroy(scheme);
}

static void forget_sent(tw_quantised *quantised, const tw_quantised_part *part)
{
    memset(((signs *)quantised)->sent[part->index], 0, 2 * sizeof(float));
}

/* The residual of the sums is then as it was once what had been sent before was subtracted. */
static void signs_revert(tw_scheme *scheme)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    if (tw_quantised_revert_sums(quantised)) tw_quantised_each_sum(quantised, forget_sent);
    if (scheme->finite) tw_quantised_each_share(quantised, forget_sent);
}

static void signs_settle(tw_scheme *scheme)
{
    tw_quantised_each_share((tw_quantised *)scheme, subtract_sent);
    tw_quantised_each_sum((tw_quantised *)scheme, subtract_sent);
}

static tw_status sign_create(tw_scheme *scheme)
{
    return create_signs(scheme, 1);
}

static tw_status onebit_create(tw_scheme *scheme)
{
    return create_signs(scheme, 2);
}

#define SIGNS                                                                                                          \
    .floor_bytes = 12, .struct_size = sizeof(signs), .options = options,                                               \
    .option_count = sizeof options / sizeof *options, .next = tw_quantised_next, .revert = signs_revert,               \
    .settle = signs_settle, .walk = tw_quantised_walk, .plan = tw_quantised_plan, .destroy = signs_destroy

const tw_scheme_ops tw_scheme_sign = {
    .name = "sign",
    .summary = "EF-signSGD: one bit an element and the mean magnitude of each tensor, with error feedback",
    .create = sign_create,
    SIGNS,
};

const tw_scheme_ops tw_scheme_onebit = {
    .name = "onebit",
    .summary = "1-bit SGD: one bit an element and two mean values of each tensor, with error feedback",
    .create = onebit_create,
    SIGNS,
};
