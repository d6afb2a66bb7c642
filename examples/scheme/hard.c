/* hard - every element above a fixed threshold, with error feedback (Sahu et al. 2021, Rethinking gradient
 * sparsification as total error minimization, NeurIPS).
 *
 * Per tensor: v += g; send every v of which |v| > lambda; what was sent leaves v. lambda is in units of the mean
 * gradient, so that it means the same for any number of ranks. Should more than most_density of a tensor stand out, the
 * largest are sent and the others wait: that bounds the packet. */
#include <stddef.h>
#include <thinwire/thinwire_scheme.h>

typedef struct hard {
    double lambda, most_density;
} hard;

static const tw_scheme_option options[] = {
    {"lambda", TW_OPTION_REAL, offsetof(hard, lambda), "0.005", 0, 1e30, NULL,
     "elements above it are sent, in units of the mean gradient"},
    {"most_density", TW_OPTION_REAL, offsetof(hard, most_density), "0.1", 1e-7, 1, NULL,
     "fraction of each tensor that is sent at most: the largest"},
};

static double density(const void *self)
{
    return ((const hard *)self)->most_density;
}

static size_t choose(void *self, tw_scheme *scheme, size_t tensor, const float *values, size_t most, uint32_t *index,
                     float *value)
{
    float lambda = (float)(((const hard *)self)->lambda / tw_scheme_size(scheme));
    return tw_scheme_choose_largest(scheme, tensor, values, most, lambda, index, value);
}

static const tw_scheme_definition definition = {
    .struct_size = sizeof definition,
    .name = "hard",
    .summary = "every element above a fixed threshold, the rest kept for later (error feedback)",
    .floor_bytes = 12,
    .self_size = sizeof(hard),
    .option_size = sizeof *options,
    .option_count = sizeof options / sizeof *options,
    .options = options,
    .density = density,
    .choose = choose,
    .version = "1",
};

TW_PLUGIN(&definition)
