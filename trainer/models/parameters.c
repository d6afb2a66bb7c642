/* parameters.c - flat arrays. */
#include "parameters.h"

#include <stdlib.h>
#include <string.h>

float *parameter_array(size_t count)
{
    size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
    float *values = aligned_alloc(64, bytes ? bytes : 64);
    if (values) memset(values, 0, bytes);
    return values;
}

tw_status parameter_set_allocate(const nn_table *table, parameter_set *set)
{
    *set = (parameter_set){table, parameter_array(table->elements), parameter_array(table->elements)};
    if (!set->values || !set->gradients)
        return tw_fail(TW_ERROR_MEMORY, "no memory for %zu parameters and their gradients", table->elements);
    return TW_OK;
}

void parameter_set_free(parameter_set *set)
{
    free(set->values);
    free(set->gradients);
    *set = (parameter_set){0};
}
