#include "tensor_table.h"
#include "error.h"
#include <math.h>
#include <stdio.h>

tw_status tensor_table_put(tw_state *state, const char *prefix, const tw_tensor *tensors, size_t count,
                           const float *values)
{
    for (size_t i = 0; i < count; i++) {
        char name[512];
        snprintf(name, sizeof name, "%s%s", prefix, tensors[i].name);
        TW_TRY(tw_state_put(state, name, TW_F32, tensors[i].dims, tensors[i].shape, values));
        values += tw_tensor_count(&tensors[i]);
    }
    return TW_OK;
}

tw_status tensor_table_get(const tw_state *state, const char *prefix, const tw_tensor *tensors, size_t count,
                           float *values)
{
    for (size_t i = 0; i < count; i++) {
        char name[512];
        size_t elements = tw_tensor_count(&tensors[i]);
        snprintf(name, sizeof name, "%s%s", prefix, tensors[i].name);
        TW_TRY(tw_state_get(state, name, TW_F32, elements, values));
        values += elements;
    }
    return TW_OK;
}

void tensor_table_place(const tw_tensor *tensors, size_t count, float *values, float **places)
{
    for (size_t i = 0; i < count; values += tw_tensor_count(&tensors[i++])) places[i] = values;
}

int tensor_table_is_finite(const float *values, size_t count)
{
    int finite = 1;
    for (size_t i = 0; i < count; i++) finite &= isfinite(values[i]) != 0;
    return finite;
}

tw_status tensor_table_check_finite(const tw_tensor *tensors, size_t count, const float *values)
{
    for (size_t i = 0; i < count; values += tw_tensor_count(&tensors[i++]))
        if (!tensor_table_is_finite(values, tw_tensor_count(&tensors[i])))
            return tw_fail(TW_ERROR_FORMAT,
                           "its %s has values that are NaN or infinite, so its run had diverged; take one from before "
                           "that, or train again with a smaller --lr",
                           tensors[i].name);
    return TW_OK;
}
