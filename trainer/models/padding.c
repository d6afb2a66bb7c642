/* padding.c - a row at a time. */
#include "padding.h"

#include <string.h>

void padding_remove(const nn_rows *rows, size_t width, const float *padded, float *packed)
{
    for (size_t u = 0; u < rows->count; u++)
        for (size_t row = rows->first[u], t = 0; row < rows->first[u + 1]; row++, t++)
            memcpy(packed + row * width, padded + (t * rows->count + u) * width, width * sizeof *packed);
}

void padding_put(const nn_rows *rows, size_t steps, size_t width, const float *packed, float *padded)
{
    memset(padded, 0, steps * rows->count * width * sizeof *padded);
    for (size_t u = 0; u < rows->count; u++)
        for (size_t row = rows->first[u], t = 0; row < rows->first[u + 1]; row++, t++)
            memcpy(padded + (t * rows->count + u) * width, packed + row * width, width * sizeof *padded);
}
