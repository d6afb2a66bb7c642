/* The table of tensors: whether one is allowed, and which of its tensors a scheme compresses. */
#include "table.h"

#include "error.h"
#include "json.h"
#include "leftovers.h"
#include "memory.h"
#include "names.h"
#include "patterns.h"
#include "registry.h"
#include "sized.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAME = 255 };

size_t tw_tensor_count(const tw_tensor *tensor)
{
    size_t count = tensor != NULL;
    for (size_t i = 0; tensor && i < tensor->dims && i < TW_MAX_DIMS; i++)
        if (__builtin_mul_overflow(count, tensor->shape[i], &count)) count = SIZE_MAX;
    return count;
}

static tw_status check_tensor(const tw_tensor *tensor, size_t index)
{
    if (!tensor->name || !*tensor->name || strlen(tensor->name) > MAX_NAME)
        return tw_fail(TW_ERROR_ARGUMENT, "tensor %zu: a name has 1 to %d bytes", index, MAX_NAME);
    if (!tw_utf8_valid(tensor->name, strlen(tensor->name)))
        return tw_fail(TW_ERROR_ARGUMENT, "tensor %zu: its name is not UTF-8, so its state could not be saved", index);
    TW_TRY(tw_check_reserved(tensor->reserved, "tw_tensor"));
    if (tensor->dims > TW_MAX_DIMS)
        return tw_fail(TW_ERROR_ARGUMENT, "tensor %s has %zu dimensions; at most %d", tensor->name, tensor->dims,
                       TW_MAX_DIMS);
    size_t count = 1;
    for (size_t i = 0; i < tensor->dims; i++) {
        if (tensor->shape[i] == 0) return tw_fail(TW_ERROR_ARGUMENT, "tensor %s is empty", tensor->name);
        if (count > ((size_t)1 << 31) / tensor->shape[i])
            return tw_fail(TW_ERROR_ARGUMENT, "tensor %s has more than 2^31 elements", tensor->name);
        count *= tensor->shape[i];
    }
    return TW_OK;
}

static tw_status check_unique(const tw_tensor *tensors, size_t count, tw_names *names)
{
    for (size_t i = 0; i < count; i++) {
        if (tw_names_find(names, tensors[i].name) != TW_NO_NAME)
            return tw_fail(TW_ERROR_ARGUMENT, "two tensors are called %s", tensors[i].name);
        TW_TRY(tw_names_add(names, tensors[i].name, i));
    }
    return TW_OK;
}

tw_status tw_table_check(const tw_tensor *tensors, size_t count)
{
    tw_names names = {0};
    if (count == 0) return tw_fail(TW_ERROR_ARGUMENT, "the table of tensors is empty");
    TW_TRY(tw_need(tensors, "tensors"));
    for (size_t i = 0; i < count; i++) TW_TRY(check_tensor(&tensors[i], i));
    tw_status status = check_unique(tensors, count, &names);
    tw_names_release(&names);
    return status;
}

tw_status tw_table_keep(const tw_tensor *tensors, size_t count, tw_tensor **kept)
{
    size_t names = 0;
    TW_TRY(tw_table_check(tensors, count));
    for (size_t i = 0; i < count; i++) names += strlen(tensors[i].name) + 1;
    TW_TRY(tw_allocate(1, count * sizeof **kept + names, kept));
    char *name = (char *)(*kept + count);
    for (size_t i = 0; i < count; i++) {
        (*kept)[i] = tensors[i];
        (*kept)[i].name = strcpy(name, tensors[i].name);
        name += strlen(name) + 1;
    }
    return TW_OK;
}

/* Why a tensor is not compressed; 0 if it is. */
static int tell_leftover(const tw_scheme *scheme, const tw_scheme_tensor *tensor, char *why, size_t room)
{
    const tw_common_options *common = &scheme->common;
    if (tensor->dims < (size_t)common->min_dims)
        return snprintf(why, room, "%zu dimension%s", tensor->dims, tensor->dims == 1 ? "" : "s");
    if (tensor->count < (size_t)common->min_elements)
        return snprintf(why, room, "%zu elements < min_elements=%" PRId64, tensor->count, common->min_elements);
    if (tw_patterns_fit(common->dense, tensor->name)) return snprintf(why, room, "dense=%s", common->dense);
    return 0;
}

/* Decides whether a tensor is compressed, and says why not. */
static void classify(const tw_scheme *scheme, tw_scheme_tensor *tensor)
{
    char why[96];
    if (!scheme->ops->plan)
        snprintf(tensor->plan, sizeof tensor->plan, "%s", scheme->ops->name);
    else if (tw_leaves_tensors(scheme->ops) && tell_leftover(scheme, tensor, why, sizeof why))
        tw_leftovers_take(scheme, tensor, why);
    else
        tensor->compressed = 1;
}

tw_status tw_table_copy(tw_scheme *scheme, const tw_tensor *tensors)
{
    for (size_t i = 0; i < scheme->count; i++) {
        tw_scheme_tensor *tensor = &scheme->tensors[i];
        TW_TRY(tw_copy_string(tensors[i].name, &tensor->name));
        tensor->dims = tensors[i].dims;
        memcpy(tensor->shape, tensors[i].shape, sizeof tensor->shape);
        tensor->count = tw_tensor_count(&tensors[i]);
        classify(scheme, tensor);
    }
    return TW_OK;
}
