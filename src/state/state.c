#include "state.h"

#include "error.h"
#include "json.h"
#include "memory.h"

#include <string.h>

const tw_dtype_info tw_dtypes[TW_DTYPES] = {
    [TW_F32] = {"F32", 4}, [TW_F64] = {"F64", 8}, [TW_I32] = {"I32", 4}, [TW_I64] = {"I64", 8},   [TW_U8] = {"U8", 1},
    [TW_U32] = {"U32", 4}, [TW_U64] = {"U64", 8}, [TW_F16] = {"F16", 2}, [TW_BF16] = {"BF16", 2},
};

int tw_shape_bytes(tw_dtype dtype, size_t dims, const size_t *shape, size_t *bytes)
{
    size_t product = tw_dtypes[dtype].bytes;
    for (size_t i = 0; i < dims; i++)
        if (__builtin_mul_overflow(product, shape[i], &product)) return 0;
    *bytes = product;
    return 1;
}

tw_status tw_state_create(tw_state **state)
{
    TW_TRY(tw_need(state, "state"));
    return tw_allocate(1, sizeof **state, state);
}

void tw_state_destroy(tw_state *state)
{
    if (!state) return;
    for (size_t i = 0; i < state->tensor_count; i++) {
        tw_free(state->tensors[i].name);
        tw_free(state->tensors[i].data);
    }
    for (size_t i = 0; i < state->line_count; i++) {
        tw_free(state->lines[i].key);
        tw_free(state->lines[i].value);
    }
    tw_names_release(&state->tensor_names);
    tw_names_release(&state->line_names);
    tw_free(state->tensors);
    tw_free(state->lines);
    tw_free(state);
}

tw_status tw_grow(void *array, size_t count, size_t *capacity, size_t entry_bytes)
{
    if (count < *capacity) return TW_OK;
    size_t larger = *capacity ? 2 * *capacity : 8;
    TW_TRY(tw_resize(array, *capacity * entry_bytes, larger * entry_bytes));
    *capacity = larger;
    return TW_OK;
}

static tw_status check_text(const char *argument, const char *text)
{
    TW_TRY(tw_need(text, argument));
    if (tw_utf8_valid(text, strlen(text))) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "the %s of an entry is not valid UTF-8", argument);
}

static tw_status check_tensor(const char *name, tw_dtype dtype, size_t dims, const size_t *shape, size_t *bytes)
{
    TW_TRY(check_text("name", name));
    if (strcmp(name, TW_METADATA) == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "no tensor can be named " TW_METADATA ": the file format keeps that name");
    if ((unsigned)dtype >= TW_DTYPES)
        return tw_fail(TW_ERROR_ARGUMENT, "tensor '%s': no type has number %d", name, (int)dtype);
    if (dims > TW_MAX_DIMS)
        return tw_fail(TW_ERROR_ARGUMENT, "tensor '%s' has %zu dimensions; at most %d are possible", name, dims,
                       TW_MAX_DIMS);
    if (!tw_shape_bytes(dtype, dims, shape, bytes))
        return tw_fail(TW_ERROR_ARGUMENT, "tensor '%s' has more bytes than this machine can address", name);
    return TW_OK;
}

/* A copy of what the entry `at` is to be called, by which it is found from now on. */
static tw_status add_name(tw_names *names, const char *name, size_t at, char **copy)
{
    TW_TRY(tw_copy_string(name, copy));
    tw_status status = tw_names_add(names, *copy, at);
    if (status != TW_OK) tw_free(*copy);
    return status;
}

/* Appends an entry that owns a copy of the name and nothing else yet. */
static tw_status append_tensor(tw_state *state, const char *name)
{
    char *copy;
    TW_TRY(tw_grow(&state->tensors, state->tensor_count, &state->tensor_capacity, sizeof *state->tensors));
    TW_TRY(add_name(&state->tensor_names, name, state->tensor_count, &copy));
    state->tensors[state->tensor_count++] = (tw_state_tensor){.name = copy};
    return TW_OK;
}

tw_status tw_state_reserve(tw_state *state, const char *name, tw_dtype dtype, size_t dims, const size_t *shape,
                           tw_state_tensor **tensor)
{
    size_t bytes = 0, at;
    void *data;
    TW_TRY(check_tensor(name, dtype, dims, shape, &bytes));
    TW_TRY(tw_allocate(bytes, 1, &data));
    at = tw_names_find(&state->tensor_names, name);
    if (at == TW_NO_NAME) {
        tw_status status = append_tensor(state, name);
        if (status != TW_OK) {
            tw_free(data);
            return status;
        }
        at = state->tensor_count - 1;
    }
    tw_state_tensor *entry = &state->tensors[at];
    tw_state_tensor made = {entry->name, dtype, dims, {0}, data, bytes};
    if (dims) memcpy(made.shape, shape, dims * sizeof *shape); /* which may be the old one's */
    tw_free(entry->data);
    *entry = made;
    *tensor = entry;
    return TW_OK;
}

tw_status tw_state_put(tw_state *state, const char *name, tw_dtype dtype, size_t dims, const size_t *shape,
                       const void *data)
{
    tw_state_tensor *tensor;
    size_t bytes = 0;
    TW_TRY(tw_need(state, "state"));
    if (dims) TW_TRY(tw_need(shape, "shape"));
    TW_TRY(check_tensor(name, dtype, dims, shape, &bytes));
    if (bytes) TW_TRY(tw_need(data, "data"));
    /* What is put may be what a tensor of this name holds: that is kept until it has been copied. */
    size_t at = tw_names_find(&state->tensor_names, name);
    void *none = NULL, **held = at == TW_NO_NAME ? &none : &state->tensors[at].data, *old = *held;
    *held = NULL;
    tw_status status = tw_state_reserve(state, name, dtype, dims, shape, &tensor);
    if (status != TW_OK) {
        *held = old;
        return status;
    }
    if (bytes) memcpy(tensor->data, data, bytes);
    tw_free(old);
    return TW_OK;
}

tw_status tw_state_find(const tw_state *state, const char *name, tw_dtype dtype, size_t count,
                        const tw_state_tensor **found)
{
    size_t at = tw_names_find(&state->tensor_names, name);
    if (at == TW_NO_NAME) return tw_fail(TW_ERROR_STATE, "the saved state has no tensor '%s'", name);
    const tw_state_tensor *tensor = &state->tensors[at];
    if (tensor->dtype != dtype)
        return tw_fail(TW_ERROR_STATE, "tensor '%s' of the saved state is %s and %s was wanted", name,
                       tw_dtypes[tensor->dtype].name, tw_dtypes[dtype].name);
    if (tensor->bytes / tw_dtypes[dtype].bytes != count)
        return tw_fail(TW_ERROR_STATE, "tensor '%s' of the saved state has %zu elements and %zu were wanted", name,
                       tensor->bytes / tw_dtypes[dtype].bytes, count);
    *found = tensor;
    return TW_OK;
}

int tw_state_has(const tw_state *state, const char *name)
{
    return tw_names_find(&state->tensor_names, name) != TW_NO_NAME;
}

tw_status tw_state_get(const tw_state *state, const char *name, tw_dtype dtype, size_t count, void *data)
{
    const tw_state_tensor *tensor = NULL;
    TW_TRY(tw_need(state, "state"));
    TW_TRY(tw_need(name, "name"));
    if (count) TW_TRY(tw_need(data, "data"));
    TW_TRY(tw_state_find(state, name, dtype, count, &tensor));
    if (tensor->bytes) memcpy(data, tensor->data, tensor->bytes);
    return TW_OK;
}

/* Appends a line; takes the value over on success only. */
static tw_status append_line(tw_state *state, const char *key, char *value)
{
    char *copy;
    TW_TRY(tw_grow(&state->lines, state->line_count, &state->line_capacity, sizeof *state->lines));
    TW_TRY(add_name(&state->line_names, key, state->line_count, &copy));
    state->lines[state->line_count++] = (tw_state_line){copy, value};
    return TW_OK;
}

tw_status tw_state_put_text(tw_state *state, const char *key, const char *value)
{
    char *copy;
    TW_TRY(tw_need(state, "state"));
    TW_TRY(check_text("key", key));
    TW_TRY(check_text("value", value));
    TW_TRY(tw_copy_string(value, &copy));
    size_t at = tw_names_find(&state->line_names, key);
    if (at == TW_NO_NAME) {
        tw_status status = append_line(state, key, copy);
        if (status != TW_OK) tw_free(copy);
        return status;
    }
    tw_free(state->lines[at].value);
    state->lines[at].value = copy;
    return TW_OK;
}

const char *tw_state_text(const tw_state *state, const char *key)
{
    size_t at = state && key ? tw_names_find(&state->line_names, key) : TW_NO_NAME;
    return at == TW_NO_NAME ? NULL : state->lines[at].value;
}

const char *tw_state_text_at(const tw_state *state, size_t index, const char **value)
{
    if (!state || index >= state->line_count) return NULL;
    if (value) *value = state->lines[index].value;
    return state->lines[index].key;
}

size_t tw_state_count(const tw_state *state)
{
    return state ? state->tensor_count : 0;
}

size_t tw_state_index(const tw_state *state, const char *name)
{
    if (!state || !name) return 0;
    size_t at = tw_names_find(&state->tensor_names, name);
    return at == TW_NO_NAME ? state->tensor_count : at;
}

tw_status tw_state_at(const tw_state *state, size_t index, tw_state_entry *entry)
{
    TW_TRY(tw_need(state, "state"));
    TW_TRY(tw_need(entry, "entry"));
    if (index >= state->tensor_count)
        return tw_fail(TW_ERROR_ARGUMENT, "the state has %zu tensors; there is no number %zu", state->tensor_count,
                       index);
    const tw_state_tensor *tensor = &state->tensors[index];
    *entry = (tw_state_entry){.name = tensor->name,
                              .dtype = tensor->dtype,
                              .dims = tensor->dims,
                              .shape = tensor->shape,
                              .data = tensor->data,
                              .bytes = tensor->bytes};
    return TW_OK;
}
