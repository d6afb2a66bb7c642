/* buffer.h - arrays that grow and are used again, call after call. */
#ifndef NN_BUFFER_H
#define NN_BUFFER_H

#include "error.h"

#include <stddef.h>

/* All zero: an empty one. */
typedef struct nn_buffer {
    float *values; /* at a multiple of 64 bytes; of large pages, if there are many */
    size_t capacity;
} nn_buffer;

/* Makes room for `count` floats. When that takes a new array, what was in the old one is gone. */
tw_status nn_buffer_reserve(nn_buffer *buffer, size_t count);
void nn_buffer_free(nn_buffer *buffer);

#endif
