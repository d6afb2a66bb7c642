/* training.h - what the tests of sequence models share: differences, and a small optimiser. */
#ifndef TEST_MODELS_TRAINING_H
#define TEST_MODELS_TRAINING_H

#include "parameters.h"
#include "support/assert.h"
#include "support/random.h"

/* The mean loss of the model behind `context` with its parameters as they stand. */
typedef double (*loss_function)(void *context);

/* Checks random coordinates of every gradient, but for those of the first `frozen` tensors, against differences of
 * `loss`, of several widths, to both sides and to either: one that is lost in the rounding of floats, or has a ReLU's
 * bend within it, is no evidence, and a wrong gradient agrees with none. */
static inline void check_learning_gradients(const parameter_set *set, size_t frozen, loss_function loss, void *context)
{
    static const float widths[] = {3e-2f, 1e-2f, 3e-3f, 1e-3f};
    enum { PROBES = 12 };
    float *gradients = malloc(set->table->elements * sizeof *gradients);
    memcpy(gradients, set->gradients, set->table->elements * sizeof *gradients);
    for (size_t t = frozen; t < set->table->count; t++) {
        const size_t begin = set->table->offsets[t], count = nn_table_elements(set->table, t);
        double squares = 0.0;
        for (size_t i = 0; i < count; i++) squares += (double)gradients[begin + i] * gradients[begin + i];
        if (strstr(set->table->tensors[t].name, "linear_k.bias")) continue; /* softmax does not feel it */
        assert_true(squares > 0.0);
        const double scale = sqrt(squares / (double)count);
        for (size_t i = 0; i < PROBES; i++) {
            uint32_t words[4];
            tw_random(7, t, i, words);
            float *value = &set->values[begin + words[0] % count], old = *value;
            double actual = gradients[begin + words[0] % count], expected = 0.0, here = loss(context);
            int agrees = 0;
            for (size_t w = 0; w < sizeof widths / sizeof *widths && !agrees; w++) {
                *value = old + widths[w];
                double above = loss(context), up = (double)*value - old;
                *value = old - widths[w];
                double below = loss(context), down = (double)old - *value;
                *value = old;
                const double slopes[] = {(above - here) / up, (here - below) / down, (above - below) / (up + down)};
                for (size_t s = 0; s < sizeof slopes / sizeof *slopes && !agrees; s++) {
                    expected = slopes[s];
                    agrees = fabs(actual - expected) <= 1e-2 * fmax(scale, fabs(expected));
                }
            }
            if (!agrees)
                fail_msg("%s[%zu]: %.6g, by differences %.6g", set->table->tensors[t].name, words[0] % count, actual,
                         expected);
        }
    }
    free(gradients);
}

static inline void check_gradients(const parameter_set *set, loss_function loss, void *context)
{
    check_learning_gradients(set, 0, loss, context);
}

/* Adam (Kingma and Ba 2015). */
typedef struct adam {
    const parameter_set *set;
    float *first, *second, rate;
    int steps;
} adam;

static inline adam adam_open(const parameter_set *set, float rate)
{
    return (adam){set, calloc(set->table->elements, sizeof(float)), calloc(set->table->elements, sizeof(float)), rate,
                  0};
}

static inline void adam_step(adam *a)
{
    a->steps++;
    float rate = a->rate * sqrtf(1.0f - powf(0.999f, (float)a->steps)) / (1.0f - powf(0.9f, (float)a->steps));
    for (size_t i = 0; i < a->set->table->elements; i++) {
        float g = a->set->gradients[i];
        a->first[i] = 0.9f * a->first[i] + 0.1f * g;
        a->second[i] = 0.999f * a->second[i] + 0.001f * g * g;
        a->set->values[i] -= rate * a->first[i] / (sqrtf(a->second[i]) + 1e-8f);
    }
}

static inline void adam_close(adam *a)
{
    free(a->first);
    free(a->second);
}

/* What a model announced, and whether it kept its word. */
typedef struct announcements {
    const parameter_set *set;
    size_t next, stop_at; /* tensors come from the last to the first */
    float *copy;          /* of the gradients when they were announced */
} announcements;

static inline announcements announcements_open(const parameter_set *set)
{
    return (announcements){set, set->table->count, SIZE_MAX, calloc(set->table->elements, sizeof(float))};
}

static inline tw_status note_announcement(void *context, size_t index, float *gradient)
{
    announcements *a = context;
    assert_int_equal(index, --a->next);
    assert_ptr_equal(gradient, a->set->gradients + a->set->table->offsets[index]);
    memcpy(a->copy + a->set->table->offsets[index], gradient,
           nn_table_elements(a->set->table, index) * sizeof *gradient);
    return index == a->stop_at ? tw_fail(TW_ERROR_PEER, "stopped by the test") : TW_OK;
}

#endif
