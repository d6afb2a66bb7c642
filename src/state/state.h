/* state.h - what the state layer's files share: the container, its types, and reading from any stream. */
#ifndef TW_STATE_STATE_H
#define TW_STATE_STATE_H

#include "names.h"

#include <stdint.h>
#include <stdio.h>
#include <thinwire/thinwire.h>

typedef struct tw_state_tensor {
    char *name;
    tw_dtype dtype;
    size_t dims, shape[TW_MAX_DIMS];
    void *data;
    size_t bytes;
} tw_state_tensor;

typedef struct tw_state_line {
    char *key, *value;
} tw_state_line;

struct tw_state {
    tw_state_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    tw_names tensor_names;
    tw_state_line *lines;
    size_t line_count, line_capacity;
    tw_names line_names;
};

/* The types, in tw_dtype's order: safetensors' names and the bytes of an element. */
enum { TW_DTYPES = 9 };
typedef struct tw_dtype_info {
    const char *name;
    size_t bytes;
} tw_dtype_info;
extern const tw_dtype_info tw_dtypes[TW_DTYPES];

/* The name of the header's entry that holds the text entries. */
#define TW_METADATA "__metadata__"

/* Bytes of a tensor of this shape: 1. Or 0 if they do not fit a size_t, and *bytes is untouched. */
int tw_shape_bytes(tw_dtype dtype, size_t dims, const size_t *shape, size_t *bytes);

/* Whether there is a tensor of this name. */
int tw_state_has(const tw_state *state, const char *name);
/* The tensor of this name; TW_ERROR_STATE as tw_state_get has it. */
tw_status tw_state_find(const tw_state *state, const char *name, tw_dtype dtype, size_t count,
                        const tw_state_tensor **found);

/* Adds a tensor whose data is still zero, or gives one of the same name new zero data; *tensor is valid until the next
 * call that adds one. On failure the state is as it was. */
tw_status tw_state_reserve(tw_state *state, const char *name, tw_dtype dtype, size_t dims, const size_t *shape,
                           tw_state_tensor **tensor);

/* Makes room for one more entry in an array that doubles; *array may be NULL. */
tw_status tw_grow(void *array, size_t count, size_t *capacity, size_t entry_bytes);

/* Reads a safetensors file of `size` bytes from the stream's position; `path` is for the error texts. */
tw_status tw_state_read(FILE *file, uint64_t size, const char *path, tw_state **state);

#endif
