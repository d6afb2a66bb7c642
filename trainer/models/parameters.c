/* parameters.c - flat arrays. */
#include "parameters.h"

#include "pages.h"

#include <stdlib.h>
#include <string.h>

float *parameter_array(size_t count)
{
    size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
    float *values = aligned_alloc(64, bytes ? bytes : 64);
    if (values) memset(values, 0, bytes);
    return values;
}

tw_status parameter_set_allocate_frozen(const nn_table *table, parameter_set *set)
{
    *set = (parameter_set){table, pages_take(table->elements), NULL};
    return set->values ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for %zu parameters", table->elements);
}

tw_status parameter_set_allocate(const nn_table *table, parameter_set *set)
{
    *set = (parameter_set){table, pages_take(table->elements), pages_take(table->elements)};
    if (!set->values || !set->gradients)
        return tw_fail(TW_ERROR_MEMORY, "no memory for %zu parameters and their gradients", table->elements);
    return TW_OK;
}

void parameter_set_free(parameter_set *set)
{
    if (set->table) pages_give(set->values, set->table->elements);
    if (set->table) pages_give(set->gradients, set->table->elements);
    *set = (parameter_set){0};
}
