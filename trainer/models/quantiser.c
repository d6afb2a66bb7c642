/* quantiser.c - logits, choices, and the gradient of a choice that has none. */
#include "quantiser.h"

#include "product.h"
#include "wide.h"

#include <math.h>
#include <thinwire/thinwire_plugin.h>

/* ---- making ---- */

tw_status quantiser_declare(const quantiser_options *options, nn_table *table, quantiser *z)
{
    const size_t all = options->groups * options->codes;
    const nn_declaration entries = {"quantizer",        "codevectors", 3, {1, all, options->width / options->groups},
                                    NN_INITIAL_UNIFORM, 1.0f};
    /* A uniform number between -r and r has the deviation r / sqrt(3). */
    const float range = options->deviation * sqrtf(3.0f / (float)options->inputs);
    const nn_affine_options logits = {"quantizer.weight_proj", options->inputs, all, range, 0.0f, options->engine};
    *z = (quantiser){.inputs = options->inputs,
                     .groups = options->groups,
                     .codes = options->codes,
                     .width = options->width,
                     .with_entries = options->with_entries,
                     .entries = table->elements,
                     .parameters.first = table->count,
                     .engine = options->engine};
    if (options->with_entries) TW_TRY(nn_table_declare(table, &entries));
    TW_TRY(nn_affine_declare(&logits, table, &z->logits));
    z->parameters.end = table->count;
    return TW_OK;
}

void quantiser_free(quantiser *z)
{
    nn_buffer_free(&z->probabilities);
    nn_buffer_free(&z->choice);
    nn_buffer_free(&z->logit_gradient);
    nn_buffer_free(&z->entry_gradients);
}

/* ---- forward ---- */

static size_t all_of(const quantiser *z)
{
    return z->groups * z->codes;
}

/* A word never makes a number that is 0 or 1, so both logarithms are finite. */
static float gumbel(uint32_t word)
{
    return (float)-log(-log(((double)word + 0.5) * 0x1p-32));
}

/* `row`: in its crop. */
static void add_noise(const nn_noise *draws, uint64_t place, size_t row, size_t count, float *values)
{
    const uint64_t stream = hiding_stream(draws, HIDING_GUMBEL, place), first = row * ((count + 3) / 4);
    for (size_t i = 0; i < count; i += 4) {
        uint32_t words[4];
        tw_random(draws->seed, stream, first + i / 4, words);
        for (size_t j = 0; j < 4 && i + j < count; j++) values[i + j] += gumbel(words[j]);
    }
}

static int32_t quantiser_largest(const float *values, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (values[i] > values[best]) best = i;
    return (int32_t)best;
}

/* softmax(values / temperature), in place */
NN_WIDE static void soften(float *values, size_t count, float maximum, float temperature)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) values[i] = nn_exp((values[i] - maximum) / temperature);
    for (size_t i = 0; i < count; i++) sum += values[i];
    for (size_t i = 0; i < count; i++) values[i] = (float)(values[i] / sum);
}

/* The groups of all rows stand one after the other, so they are rows of `codes` values. */
static void quantiser_choose(float *values, size_t rows, size_t codes, float temperature, int32_t *choices)
{
    for (size_t i = 0; i < rows; i++, values += codes) {
        choices[i] = quantiser_largest(values, codes);
        soften(values, codes, values[choices[i]], temperature);
    }
}

static void draw_choices(quantiser *z, const quantiser_call *call)
{
    const size_t all = all_of(z);
    const hiding *h = call->hidden;
    for (size_t u = 0; u < h->crops.count; u++)
        for (size_t i = h->first[u]; i < h->first[u + 1]; i++)
            add_noise(call->draws, call->places[u], h->rows[i] - call->rows->first[u], all, z->choice.values + i * all);
    quantiser_choose(z->choice.values, h->count * z->groups, z->codes, call->temperature, call->chosen);
}

static void look_up(const quantiser *z, const float *entries, const quantiser_call *call)
{
    const size_t width = z->width / z->groups, rows = call->hidden->count * z->groups;
    for (size_t i = 0; i < rows; i++) {
        const size_t entry = (i % z->groups) * z->codes + (size_t)call->chosen[i];
        memcpy(call->q + i * width, entries + entry * width, width * sizeof *entries);
    }
}

tw_status quantiser_forward(quantiser *z, const float *values, const quantiser_call *call)
{
    const size_t rows = call->hidden->count, count = rows * all_of(z);
    TW_TRY(nn_buffer_reserve(&z->probabilities, count));
    TW_TRY(nn_buffer_reserve(&z->choice, count));
    z->temperature = call->temperature;
    if (rows == 0) return TW_OK;
    TW_TRY(nn_affine_forward(&z->logits, values, rows, call->x, z->probabilities.values));
    memcpy(z->choice.values, z->probabilities.values, count * sizeof(float));
    quantiser_choose(z->probabilities.values, rows * z->groups, z->codes, 1.0f, call->best);
    if (call->temperature > 0.0f)
        draw_choices(z, call);
    else
        memcpy(call->chosen, call->best, rows * z->groups * sizeof *call->chosen);
    if (call->q) look_up(z, values + z->entries, call);
    return TW_OK;
}

/* ---- backward ---- */

/* gradient += scale * p (v - <v, p>): through a softmax whose values are p. */
NN_WIDE static void add_softmax_gradient(const float *p, const float *v, size_t count, float scale, float *gradient)
{
    double mean = 0.0;
    for (size_t i = 0; i < count; i++) mean += (double)v[i] * p[i];
    for (size_t i = 0; i < count; i++) gradient[i] += scale * p[i] * (v[i] - (float)mean);
}

/* What each entry would have done to the loss: its product with the gradient of q. */
static tw_status try_entries(quantiser *z, const float *entries, size_t rows, const float *q_gradient)
{
    const size_t width = z->width / z->groups;
    const nn_product product = {.transpose_b = 1, .m = rows, .n = z->codes, .k = width};
    const nn_strides strides = {z->width, width, all_of(z)};
    TW_TRY(nn_buffer_reserve(&z->entry_gradients, rows * all_of(z)));
    for (size_t g = 0; g < z->groups; g++)
        TW_TRY(nn_multiply_parts(&product, 1.0f, &strides, q_gradient + g * width, entries + g * z->codes * width,
                                 z->entry_gradients.values + g * z->codes));
    return TW_OK;
}

/* Of the entries that were chosen. */
static void entry_gradient(const quantiser *z, const quantiser_call *call, const float *q_gradient, float *gradient)
{
    const size_t width = z->width / z->groups;
    memset(gradient, 0, all_of(z) * width * sizeof *gradient);
    for (size_t i = 0; i < call->hidden->count * z->groups; i++) {
        float *entry = gradient + ((i % z->groups) * z->codes + (size_t)call->chosen[i]) * width;
        for (size_t c = 0; c < width; c++) entry[c] += q_gradient[i * width + c];
    }
}

static tw_status backward_choice(quantiser *z, const float *values, const quantiser_call *call, const float *q_gradient,
                                 float *gradients)
{
    const size_t rows = call->hidden->count;
    entry_gradient(z, call, q_gradient, gradients + z->entries);
    if (rows == 0) return TW_OK;
    TW_TRY(try_entries(z, values + z->entries, rows, q_gradient));
    for (size_t i = 0; i < rows * z->groups; i++)
        add_softmax_gradient(z->choice.values + i * z->codes, z->entry_gradients.values + i * z->codes, z->codes,
                             1.0f / z->temperature, z->logit_gradient.values + i * z->codes);
    return TW_OK;
}

tw_status quantiser_backward(quantiser *z, const float *values, const quantiser_call *call, const float *q_gradient,
                             const float *diversity, float *gradients, float *x_gradient)
{
    const size_t rows = call->hidden->count, all = all_of(z);
    TW_TRY(nn_buffer_reserve(&z->logit_gradient, rows * all));
    if (rows) memset(z->logit_gradient.values, 0, rows * all * sizeof(float));
    if (q_gradient) TW_TRY(backward_choice(z, values, call, q_gradient, gradients));
    for (size_t i = 0; i < rows * z->groups; i++)
        add_softmax_gradient(z->probabilities.values + i * z->codes, diversity + (i % z->groups) * z->codes, z->codes,
                             1.0f, z->logit_gradient.values + i * z->codes);
    if (rows == 0) {
        memset(gradients + z->logits.weight, 0, all * z->inputs * sizeof *gradients);
        memset(gradients + z->logits.bias, 0, all * sizeof *gradients);
        return TW_OK;
    }
    TW_TRY(nn_affine_backward_parameters(&z->logits, rows, call->x, z->logit_gradient.values, gradients));
    return nn_affine_backward_source(&z->logits, values, rows, z->logit_gradient.values, x_gradient);
}

/* ---- diversity ---- */

static const double least = 1e-7; /* keeps the logarithm of a dead code finite */

double quantiser_diversity(const double *mean, size_t groups, size_t codes, double *slope)
{
    const double all = (double)(groups * codes);
    double alive = 0.0;
    for (size_t g = 0; g < groups; g++) {
        const double *p = mean + g * codes;
        double entropy = 0.0;
        for (size_t v = 0; v < codes; v++) entropy -= p[v] * log(p[v] + least);
        alive += exp(entropy);
        for (size_t v = 0; slope && v < codes; v++)
            slope[g * codes + v] = exp(entropy) / all * (log(p[v] + least) + p[v] / (p[v] + least));
    }
    return (all - alive) / all;
}
