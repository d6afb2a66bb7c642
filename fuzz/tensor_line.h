/* tensor_line.h - a tensor as a fuzzed text has it: a line "name 2 3". */
#ifndef TW_FUZZ_TENSOR_LINE_H
#define TW_FUZZ_TENSOR_LINE_H

#include "fuzz.h"

#include <string.h>
#include <thinwire/thinwire.h>

/* Values that differ. A name or a shape that cannot be is left out. */
static inline void put_tensor(tw_state *state, char *line)
{
    enum { ELEMENTS = 1 << 16, DIMENSIONS = 4 };
    static float values[ELEMENTS];
    size_t shape[DIMENSIONS], count = 1, dims = 0;
    char *next = strchr(line, ' ');
    if (next) *next++ = '\0';
    for (; next && *next && dims < DIMENSIONS && count <= ELEMENTS; dims++)
        count *= shape[dims] = strtoul(next, &next, 10) % 4096;
    if (count > ELEMENTS) return;
    for (size_t i = 0; i < count; i++) values[i] = 0.1f * (float)(i % 7) - 0.3f;
    (void)tw_state_put(state, line, TW_F32, dims, shape, values);
}

#endif
