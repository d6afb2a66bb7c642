#include "signs.h"

#include "error.h"
#include "memory.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* A section is the means, then the packed signs. */
static size_t head_bytes(const tw_scheme *scheme)
{
    return (size_t)((const tw_signs *)scheme)->means * sizeof(float);
}

static size_t section_bytes(const tw_scheme *scheme, size_t n)
{
    return head_bytes(scheme) + (n + 7) / 8;
}

/* What a bit of 0 and one of 1 stand for. */
static void read_means(const tw_scheme *scheme, const unsigned char *section, float mean[2])
{
    mean[0] = tw_quantised_get_float(section);
    mean[1] = ((const tw_signs *)scheme)->means == 2 ? tw_quantised_get_float(section + sizeof(float)) : -mean[0];
}

/* The mean as a float, which a sum of many can only leave if something has gone wrong before. */
static float mean_of(double sum, size_t count)
{
    return count ? (float)fmax(fmin(sum / (double)count, FLT_MAX), -FLT_MAX) : 0;
}

static void write_means(const tw_signs *self, size_t n, tw_sign_sums *sums, unsigned char *section)
{
    double positive = tw_kernels_fold(sums->positive), negative = tw_kernels_fold(sums->negative);
    if (self->means == 2) {
        tw_quantised_put_float(section, mean_of(positive, n - sums->negatives));
        tw_quantised_put_float(section + sizeof(float), mean_of(negative, sums->negatives));
    } else {
        tw_quantised_put_float(section, mean_of(positive - negative, n));
    }
}

static void encode(tw_quantised *quantised, const tw_quantised_part *part, unsigned char *section)
{
    const tw_scheme *scheme = &quantised->scheme;
    tw_signs *self = (tw_signs *)quantised;
    float *sent = self->sent[part->index];
    tw_sign_sums sums = {0};
    tw_kernels_best()->quantise->send_signs(part->residual, part->values, part->n, part->scale, sent,
                                            section + head_bytes(scheme), &sums);
    write_means(self, part->n, &sums, section);
    read_means(scheme, section, sent);
}

/* Leaves in the residual what the next step would find. */
static void subtract_sent(tw_quantised *quantised, const tw_quantised_part *part)
{
    float *sent = ((tw_signs *)quantised)->sent[part->index];
    for (size_t i = 0; i < part->n; i++) part->residual[i] -= sent[part->residual[i] < 0];
    memset(sent, 0, 2 * sizeof *sent);
}

static const char *check(const tw_scheme *scheme, const unsigned char *section, size_t n, float *largest)
{
    float mean[2];
    (void)n;
    read_means(scheme, section, mean);
    *largest = fmaxf(mean[0], -mean[1]);
    int sound = mean[0] >= 0 && mean[1] <= 0 && *largest <= FLT_MAX; /* false for NaN */
    return sound ? NULL : "a mean is not finite or of the wrong sign";
}

static void add(const tw_scheme *scheme, const unsigned char *section, size_t n, size_t first, size_t count, float *sum)
{
    float mean[2];
    (void)n;
    read_means(scheme, section, mean);
    tw_kernels_best()->quantise->add_signs(sum, section + head_bytes(scheme) + first / 8, count, mean);
}

static const tw_quantised_ops ops = {
    .block = TW_QUANTISED_BLOCK,
    .bytes = section_bytes,
    .encode = encode,
    .close = subtract_sent,
    .check = check,
    .add = add,
};

tw_status tw_signs_create(tw_scheme *scheme, int means)
{
    tw_signs *self = (tw_signs *)scheme;
    self->means = means;
    TW_TRY(tw_quantised_create(scheme, &ops, 1));
    return tw_allocate(tw_quantised_parts(&self->quantised), sizeof *self->sent, &self->sent);
}

void tw_signs_destroy(tw_scheme *scheme)
{
    tw_signs *self = (tw_signs *)scheme;
    tw_free(self->sent);
    tw_quantised_destroy(scheme);
}

static void forget_sent(tw_quantised *quantised, const tw_quantised_part *part)
{
    memset(((tw_signs *)quantised)->sent[part->index], 0, 2 * sizeof(float));
}

/* The residual of the sums is then as it was once what had been sent before was subtracted. */
void tw_signs_revert(tw_scheme *scheme)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    if (tw_quantised_revert_sums(quantised)) tw_quantised_each_sum(quantised, forget_sent);
    if (scheme->finite) tw_quantised_each_share(quantised, forget_sent);
}

void tw_signs_settle(tw_scheme *scheme)
{
    tw_quantised_each_share((tw_quantised *)scheme, subtract_sent);
    tw_quantised_each_sum((tw_quantised *)scheme, subtract_sent);
}
