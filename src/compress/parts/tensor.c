/* What several schemes do with one tensor of theirs. */
#include "scheme.h"

#include <string.h>
#include <thinwire/thinwire_plugin.h>

uint64_t tw_scheme_stream(const tw_scheme *scheme, size_t tensor, int number)
{
    const char *name = scheme->tensors[tensor].name;
    return (uint64_t)number << 32 | tw_crc32c(0, name, strlen(name));
}

/* What most of a walk's entries have in common. */
tw_status tw_walk_floats(tw_walk *walk, const char *what, const tw_scheme_tensor *tensor, tw_state_kind kind,
                         float *values)
{
    tw_remembered entry = {
        .what = what, .tensor = tensor->name, .kind = kind, .dtype = TW_F32, .count = tensor->count, .data = values};
    return walk->visit(walk, &entry);
}
