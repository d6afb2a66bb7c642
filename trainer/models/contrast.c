/* contrast.c - all cosines of a crop are one product of matrices, and so is each gradient. */
#include "contrast.h"

#include "product.h"

#include <math.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

void contrast_room_free(contrast_room *room)
{
    nn_buffer_free(&room->scores);
    nn_buffer_free(&room->unit_c);
    nn_buffer_free(&room->unit_q);
    nn_buffer_free(&room->lengths);
    nn_buffer_free(&room->chosen);
}

/* ---- vectors of length 1 ---- */

static void contrast_normalise(const float *rows, size_t count, size_t width, float *unit, float *inverse_lengths)
{
    for (size_t i = 0; i < count; i++, rows += width, unit += width) {
        double squares = 0.0;
        for (size_t c = 0; c < width; c++) squares += (double)rows[c] * rows[c];
        inverse_lengths[i] = (float)(1.0 / fmax(sqrt(squares), 1e-8));
        for (size_t c = 0; c < width; c++) unit[c] = rows[c] * inverse_lengths[i];
    }
}

/* From the gradient of the unit vectors to that of the vectors, in place: what points along one has no effect. */
static void normalise_gradient(const float *unit, const float *inverse_lengths, size_t count, size_t width,
                               float *gradient)
{
    for (size_t i = 0; i < count; i++, unit += width, gradient += width) {
        double along = 0.0;
        for (size_t c = 0; c < width; c++) along += (double)unit[c] * gradient[c];
        for (size_t c = 0; c < width; c++) gradient[c] = inverse_lengths[i] * (gradient[c] - unit[c] * (float)along);
    }
}

/* ---- distractors ---- */

/* How often each of a crop's `count` rows is a distractor of row i: all others once, or draws with replacement. */
static void contrast_choose(const contrast_call *call, size_t crop, size_t count, size_t i, size_t distractors,
                            float *times)
{
    const uint64_t stream = hiding_stream(call->draws, HIDING_DISTRACTORS, call->places[crop]);
    for (size_t j = 0; j < count; j++) times[j] = count - 1 <= distractors && j != i ? 1.0f : 0.0f;
    for (size_t d = 0; count - 1 > distractors && d < distractors; d++) {
        uint32_t words[4];
        tw_random(call->draws->seed, stream, i * ((distractors + 3) / 4) + d / 4, words);
        const size_t other = (size_t)((uint64_t)words[d % 4] * (count - 1) >> 32);
        times[other + (other >= i)] += 1.0f;
    }
}

/* Leaves out those of the row's own code. */
static void leave_out_same(const int32_t *codes, size_t groups, size_t count, size_t i, float *times,
                           contrast_result *result)
{
    for (size_t j = 0; j < count; j++) {
        result->distractors += (double)times[j];
        if (times[j] == 0.0f || memcmp(codes + i * groups, codes + j * groups, groups * sizeof *codes) != 0) continue;
        result->same += (double)times[j];
        times[j] = 0.0f;
    }
}

/* ---- a row ---- */

typedef struct rivals {
    double count; /* with repetitions */
    float best;   /* their largest score */
} rivals;

static rivals rivals_of(const float *scores, const float *times, size_t count)
{
    rivals r = {0.0, -INFINITY};
    for (size_t j = 0; j < count; j++) {
        r.count += (double)times[j];
        if (times[j] > 0.0f && scores[j] > r.best) r.best = scores[j];
    }
    return r;
}

/* Scores become the gradient of weight * loss. */
static double contrast_lose(float *scores, const float *times, size_t count, size_t i, float maximum, float weight)
{
    double sum = exp((double)scores[i] - maximum);
    for (size_t j = 0; j < count; j++)
        if (times[j] > 0.0f) sum += times[j] * exp((double)scores[j] - maximum);
    const double loss = maximum + log(sum) - scores[i];
    for (size_t j = 0; j < count; j++) {
        const double share = (j == i ? 1.0 : (double)times[j]) *
                             (j == i || times[j] > 0.0f ? exp((double)scores[j] - maximum) : 0.0) / sum;
        scores[j] = (float)(weight * (share - (j == i)));
    }
    return loss;
}

static void compare_row(float *scores, const float *times, size_t count, size_t i, float weight,
                        contrast_result *result)
{
    const rivals r = rivals_of(scores, times, count);
    if (r.count == 0.0) {
        memset(scores, 0, count * sizeof *scores);
        return;
    }
    result->compared += 1.0;
    result->chance += log(1.0 + r.count);
    result->correct += scores[i] > r.best;
    result->correct_chance += 1.0 / (1.0 + r.count);
    result->loss += contrast_lose(scores, times, count, i, fmaxf(scores[i], r.best), weight);
}

/* ---- a crop ---- */

static tw_status crop_gradients(const contrast_options *o, const contrast_call *call, size_t first, size_t count,
                                const contrast_room *room)
{
    const nn_product to_c = {.m = count, .n = o->width, .k = count};
    const nn_product to_q = {.transpose_a = 1, .m = count, .n = o->width, .k = count};
    const nn_strides strides = {count, o->width, o->width};
    const float *c = room->unit_c.values, *q = room->unit_q.values;
    float *c_gradient = call->c_gradient + first * o->width, *q_gradient = call->q_gradient + first * o->width;
    TW_TRY(nn_multiply_parts(&to_c, 1.0f / o->similarity, &strides, room->scores.values, q, c_gradient));
    TW_TRY(nn_multiply_parts(&to_q, 1.0f / o->similarity, &strides, room->scores.values, c, q_gradient));
    normalise_gradient(c, room->lengths.values, count, o->width, c_gradient);
    normalise_gradient(q, room->lengths.values + count, count, o->width, q_gradient);
    return TW_OK;
}

static tw_status compare_crop(const contrast_options *o, const contrast_call *call, size_t crop, contrast_room *room,
                              contrast_result *result)
{
    const size_t first = call->crops->first[crop], count = nn_rows_length(call->crops, crop);
    const nn_product scores = {.transpose_b = 1, .m = count, .n = count, .k = o->width};
    float *times = room->chosen.values;
    result->lonely += count < 2;
    if (count == 0) return TW_OK;
    contrast_normalise(call->c + first * o->width, count, o->width, room->unit_c.values, room->lengths.values);
    contrast_normalise(call->q + first * o->width, count, o->width, room->unit_q.values, room->lengths.values + count);
    TW_TRY(nn_multiply_parts(&scores, 1.0f / o->similarity, &(nn_strides){o->width, o->width, count},
                             room->unit_c.values, room->unit_q.values, room->scores.values));
    for (size_t i = 0; i < count; i++) {
        contrast_choose(call, crop, count, i, o->distractors, times);
        leave_out_same(call->codes + first * o->groups, o->groups, count, i, times, result);
        compare_row(room->scores.values + i * count, times, count, i, call->weight, result);
    }
    return call->c_gradient ? crop_gradients(o, call, first, count, room) : TW_OK;
}

static tw_status contrast_reserve(const contrast_options *o, const nn_rows *crops, contrast_room *room)
{
    size_t longest = 1;
    for (size_t u = 0; u < crops->count; u++)
        if (nn_rows_length(crops, u) > longest) longest = nn_rows_length(crops, u);
    TW_TRY(nn_buffer_reserve(&room->scores, longest * longest));
    TW_TRY(nn_buffer_reserve(&room->unit_c, longest * o->width));
    TW_TRY(nn_buffer_reserve(&room->unit_q, longest * o->width));
    TW_TRY(nn_buffer_reserve(&room->lengths, 2 * longest));
    return nn_buffer_reserve(&room->chosen, longest);
}

tw_status contrast(const contrast_options *options, const contrast_call *call, contrast_room *room,
                   contrast_result *result)
{
    *result = (contrast_result){0};
    TW_TRY(contrast_reserve(options, call->crops, room));
    for (size_t u = 0; u < call->crops->count; u++) TW_TRY(compare_crop(options, call, u, room, result));
    return TW_OK;
}
