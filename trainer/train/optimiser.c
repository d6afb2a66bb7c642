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

/* Where to go from w, for one parameter. */
static inline float direct(optimiser_settings s, float decay, float gradient, float w, float *buffer)
{
    float force = decay * w + (s.directed ? 0.0f : gradient);
    *buffer = s.momentum * *buffer + force;
    float direction = s.nesterov ? force + s.momentum * *buffer : *buffer;
    return s.directed ? gradient + direction : direction;
}

static float decay_of(const optimiser *o, size_t tensor)
{
    return o->tensors[tensor].dims >= 2 ? o->settings.weight_decay : 0.0f;
}

void optimiser_step(optimiser *o, float rate, const float *gradients, float *parameters)
{
    const optimiser_settings s = o->settings;
    float *buffer = o->buffer;
    for (size_t t = 0, at = 0; t < o->tensor_count; t++) {
        const float decay = decay_of(o, t);
        for (size_t end = at + tw_tensor_count(&o->tensors[t]); at < end; at++)
            parameters[at] -= rate * direct(s, decay, gradients[at], parameters[at], &buffer[at]);
    }
}

void optimiser_propose(optimiser *o, float rate, const float *parameters, float *gradients)
{
    const optimiser_settings s = o->settings;
    float *buffer = o->buffer;
    for (size_t t = 0, at = 0; t < o->tensor_count; t++) {
        const float decay = decay_of(o, t);
        for (size_t end = at + tw_tensor_count(&o->tensors[t]); at < end; at++)
            gradients[at] = -(rate * direct(s, decay, gradients[at], parameters[at], &buffer[at]));
    }
}

float *optimiser_buffer(optimiser *o, size_t *count)
{
    *count = o->parameter_count;
    return o->buffer;
}
