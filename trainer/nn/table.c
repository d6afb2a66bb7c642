/* table.c - declaring tensors, and their initial values. */
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ELEMENTS (SIZE_MAX / sizeof(float) / 4)

/* ---- declaring ---- */

void nn_table_free(nn_table *table)
{
    for (size_t i = 0; i < table->count; i++) free((char *)table->tensors[i].name);
    free(table->tensors);
    free(table->offsets);
    free(table->initials);
    free(table->scales);
    free(table->units);
    *table = (nn_table){0};
}

static int enlarge(void *array, size_t count, size_t size)
{
    void **pointer = array;
    void *larger = realloc(*pointer, count * size);
    if (larger) *pointer = larger;
    return larger != NULL;
}

tw_status nn_table_declare(nn_table *table, const nn_declaration *d)
{
    size_t count = table->count + 1, elements = 1, total;
    char *name;
    for (size_t i = 0; i < d->dims; i++)
        if (__builtin_mul_overflow(elements, d->shape[i], &elements)) elements = SIZE_MAX;
    if (__builtin_add_overflow(table->elements, elements, &total) || total > MOST_ELEMENTS)
        return tw_fail(TW_ERROR_ARGUMENT, "with %s.%s there would be more parameters than memory has addresses",
                       d->layer, d->name);
    if (!enlarge(&table->tensors, count, sizeof *table->tensors) ||
        !enlarge(&table->offsets, count, sizeof *table->offsets) ||
        !enlarge(&table->initials, count, sizeof *table->initials) ||
        !enlarge(&table->scales, count, sizeof *table->scales) || asprintf(&name, "%s.%s", d->layer, d->name) < 0)
        return tw_fail(TW_ERROR_MEMORY, "no memory for the table of tensors");
    tw_tensor tensor = {.name = name, .dims = d->dims};
    memcpy(tensor.shape, d->shape, d->dims * sizeof *d->shape);
    table->tensors[table->count] = tensor;
    table->offsets[table->count] = table->elements;
    table->initials[table->count] = d->initial;
    table->scales[table->count] = d->scale;
    table->count = count;
    table->elements = total;
    return TW_OK;
}

size_t nn_table_elements(const nn_table *table, size_t index)
{
    size_t end = index + 1 < table->count ? table->offsets[index + 1] : table->elements;
    return end - table->offsets[index];
}

/* ---- initial values ---- */

static void fill_with(float *values, size_t count, float value)
{
    for (size_t i = 0; i < count; i++) values[i] = value;
}

/* Two normal numbers from two uniform words (Box and Muller, 1958). */
static void normal_pair(const uint32_t words[2], double pair[2])
{
    const double two_pi = 6.283185307179586;
    double radius = sqrt(-2.0 * log((words[0] + 1.0) * 0x1p-32)), angle = two_pi * words[1] * 0x1p-32;
    pair[0] = radius * cos(angle);
    pair[1] = radius * sin(angle);
}

static void fill_normal(float *values, size_t count, double deviation, uint64_t seed, uint64_t stream)
{
    for (size_t i = 0; i < count; i += 4) {
        uint32_t words[4];
        double normal[4];
        tw_random(seed, stream, i / 4, words);
        normal_pair(words, normal);
        normal_pair(words + 2, normal + 2);
        for (size_t j = 0; j < 4 && i + j < count; j++) values[i + j] = (float)(deviation * normal[j]);
    }
}

static void fill_uniform(float *values, size_t count, double range, uint64_t seed, uint64_t stream)
{
    for (size_t i = 0; i < count; i += 4) {
        uint32_t words[4];
        tw_random(seed, stream, i / 4, words);
        for (size_t j = 0; j < 4 && i + j < count; j++)
            values[i + j] = (float)(range * ((words[j] + 0.5) * 0x1p-31 - 1.0));
    }
}

static void initialise(const nn_table *table, size_t index, uint64_t seed, float *values)
{
    size_t count = nn_table_elements(table, index), fan_in = count / table->tensors[index].shape[0];
    switch (table->initials[index]) {
    case NN_INITIAL_ZERO:
        fill_with(values, count, 0.0f);
        break;
    case NN_INITIAL_ONE:
        fill_with(values, count, 1.0f);
        break;
    case NN_INITIAL_HE:
        fill_normal(values, count, sqrt(2.0 / (double)fan_in), seed, index);
        break;
    case NN_INITIAL_SMALL:
        fill_normal(values, count, 0.2 * sqrt(2.0 / (double)fan_in), seed, index);
        break;
    case NN_INITIAL_UNIFORM:
        fill_uniform(values, count, table->scales[index], seed, index);
        break;
    case NN_INITIAL_FORGET:
        fill_with(values, count, 0.0f);
        fill_with(values + count / 4, count / 4, table->scales[index]);
        break;
    }
}

tw_status nn_table_initialise(const nn_table *table, uint64_t seed, float *values)
{
    const size_t end = table->held.end ? table->held.end : table->count;
    for (size_t i = table->held.first; i < end; i++) {
        TW_TRY(nn_table_use(table, (nn_range){i, i + 1}, PAGER_CHANGE));
        initialise(table, i, seed, values + table->offsets[i]);
    }
    return TW_OK;
}

/* ---- paging ---- */

tw_status nn_table_end_unit(nn_table *table, int stays)
{
    const size_t before = table->unit_count ? table->units[table->unit_count - 1].end : 0;
    if (table->elements == before) return TW_OK;
    if (!enlarge(&table->units, table->unit_count + 1, sizeof *table->units))
        return tw_fail(TW_ERROR_MEMORY, "no memory for the table of layers");
    table->units[table->unit_count++] = (pager_unit){table->elements, stays != 0};
    return TW_OK;
}

tw_status nn_table_page(nn_table *table, pager *by, float *values, float *gradients)
{
    TW_TRY(nn_table_end_unit(table, 0));
    TW_TRY(pager_lay(by, table->units, table->unit_count, values, gradients));
    if (pager_is_needed(by)) table->pager = by;
    return TW_OK;
}

tw_status nn_table_use(const nn_table *table, nn_range range, pager_pass pass)
{
    if (!table->pager || range.first == range.end) return TW_OK;
    const size_t end = range.end < table->count ? table->offsets[range.end] : table->elements;
    return pager_use(table->pager, table->offsets[range.first], end, pass);
}

/* ---- announcing ---- */

tw_status nn_table_announce(const nn_table *table, nn_range range, float *gradients, nn_gradient_ready ready,
                            void *context)
{
    if (!ready || !gradients) return TW_OK;
    for (size_t i = range.end; i-- > range.first;) TW_TRY(ready(context, i, gradients + table->offsets[i]));
    return TW_OK;
}
