#include "optimiser.h"
#include "error.h"
#include <stdlib.h>

struct optimiser {
    optimiser_settings settings;
    const tw_tensor *tensors;
    size_t tensor_count;
    size_t parameter_count;
    float *buffer;
};

tw_status optimiser_create(const optimiser_settings *settings, const tw_tensor *tensors, size_t count, optimiser **out)
{
    optimiser *o = calloc(1, sizeof *o);
    if (!o) return tw_fail(TW_ERROR_MEMORY, "no memory for the optimiser");
    *o = (optimiser){.settings = *settings, .tensors = tensors, .tensor_count = count};
    for (size_t i = 0; i < count; i++) o->parameter_count += tw_tensor_count(&tensors[i]);
    o->buffer = calloc(o->parameter_count, sizeof *o->buffer);
    if (!o->buffer) {
        size_t wanted = o->parameter_count;
        optimiser_destroy(o);
        return tw_fail(TW_ERROR_MEMORY, "no memory for a momentum buffer of %zu floats", wanted);
    }
    *out = o;
    return TW_OK;
}

void optimiser_destroy(optimiser *o)
{
    if (!o) return;
    free(o->buffer);
    free(o);
}

/* One tensor, or any run of parameters that are decayed alike. */
static void update(const optimiser_settings *s, float decay, float rate, size_t count, const float *gradient,
                   float *buffer, float *w)
{
    const float momentum = s->momentum;
    const int nesterov = s->nesterov, directed = s->directed;
    for (size_t i = 0; i < count; i++) {
        float force = decay * w[i] + (directed ? 0.0f : gradient[i]);
        buffer[i] = momentum * buffer[i] + force;
        float step = nesterov ? force + momentum * buffer[i] : buffer[i];
        w[i] -= rate * (directed ? gradient[i] + step : step);
    }
}

void optimiser_step(optimiser *o, float rate, const float *gradients, float *parameters)
{
    size_t at = 0;
    for (size_t i = 0; i < o->tensor_count; i++) {
        size_t count = tw_tensor_count(&o->tensors[i]);
        float decay = o->tensors[i].dims >= 2 ? o->settings.weight_decay : 0.0f;
        update(&o->settings, decay, rate, count, gradients + at, o->buffer + at, parameters + at);
        at += count;
    }
}

float *optimiser_buffer(optimiser *o, size_t *count)
{
    *count = o->parameter_count;
    return o->buffer;
}
