#include "shape.h"

#include <stdio.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

const char *shape_text(size_t dims, const size_t *shape, char text[SHAPE_TEXT])
{
    size_t used = (size_t)snprintf(text, SHAPE_TEXT, dims ? "" : "1");
    for (size_t d = 0; d < dims && used < SHAPE_TEXT; d++)
        used += (size_t)snprintf(text + used, SHAPE_TEXT - used, "%s%zu", d ? "x" : "", shape[d]);
    return text;
}

bool shape_fits(const tw_tensor *tensor, const tw_state_entry *entry)
{
    if (entry->dtype != TW_F32 || entry->dims != tensor->dims) return false;
    return memcmp(entry->shape, tensor->shape, tensor->dims * sizeof *tensor->shape) == 0;
}

void shape_mark(const tw_state *state, const tw_tensor *tensors, size_t count, bool *known)
{
    for (size_t i = 0; i < count; i++) known[tw_state_index(state, tensors[i].name)] = true;
}
