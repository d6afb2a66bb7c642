/* heavy.h - a scheme from outside with a momentum of its own: the largest of a velocity that is added up. */
#ifndef PLUGIN_HEAVY_H
#define PLUGIN_HEAVY_H

#include <stdlib.h>
#include <thinwire/thinwire_scheme.h>

typedef struct heavy {
    double density, momentum;
    size_t tensors;
    float **velocity;
} heavy;

static const tw_scheme_option heavy_options[] = {
    {"density", TW_OPTION_REAL, offsetof(heavy, density), "0.1", 1e-7, 1, NULL, "fraction of each tensor"},
    {"momentum", TW_OPTION_REAL, offsetof(heavy, momentum), "0.9", 0, 0.99, NULL, "its own"},
};

static tw_status heavy_create(void *self, tw_scheme *scheme)
{
    heavy *h = self;
    h->tensors = tw_scheme_tensors(scheme);
    h->velocity = calloc(h->tensors, sizeof *h->velocity);
    for (size_t t = 0; t < h->tensors; t++)
        if (tw_scheme_is_compressed(scheme, t)) h->velocity[t] = calloc(tw_scheme_elements(scheme, t), sizeof(float));
    return TW_OK;
}

static void heavy_destroy(void *self)
{
    heavy *h = self;
    for (size_t t = 0; t < h->tensors; t++) free(h->velocity[t]);
    free(h->velocity);
}

static double heavy_density(const void *self)
{
    return ((const heavy *)self)->density;
}

static void heavy_accumulate(void *self, tw_scheme *scheme, size_t tensor, float scale, const float *gradient,
                             float *residual)
{
    heavy *h = self;
    for (size_t i = 0; i < tw_scheme_elements(scheme, tensor); i++)
        residual[i] += h->velocity[tensor][i] = (float)h->momentum * h->velocity[tensor][i] + scale * gradient[i];
}

static size_t heavy_choose(void *self, tw_scheme *scheme, size_t tensor, const float *values, size_t most,
                           uint32_t *index, float *value)
{
    (void)self;
    return tw_scheme_choose_largest(scheme, tensor, values, most, 0, index, value);
}

static float heavy_momentum(const void *self, int *nesterov)
{
    *nesterov = 0;
    return (float)((const heavy *)self)->momentum;
}

static tw_status heavy_walk(void *self, tw_scheme *scheme, tw_walk *walk)
{
    heavy *h = self;
    tw_status status = TW_OK;
    for (size_t t = 0; t < h->tensors && status == TW_OK; t++)
        if (h->velocity[t])
            status = tw_walk_visit(walk, "momentum", tw_scheme_tensor_name(scheme, t), TW_STATE_ADDS, TW_F32,
                                   tw_scheme_elements(scheme, t), h->velocity[t]);
    return status;
}

static const tw_scheme_definition heavy_definition = {
    .struct_size = sizeof heavy_definition,
    .name = "heavy",
    .summary = "momentum before the selection",
    .floor_bytes = 20,
    .self_size = sizeof(heavy),
    .option_size = sizeof *heavy_options,
    .option_count = sizeof heavy_options / sizeof *heavy_options,
    .options = heavy_options,
    .create = heavy_create,
    .destroy = heavy_destroy,
    .density = heavy_density,
    .choose = heavy_choose,
    .accumulate = heavy_accumulate,
    .momentum = heavy_momentum,
    .walk = heavy_walk,
};

#endif
