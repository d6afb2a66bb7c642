/* What most of a walk's entries have in common. */
#include "scheme.h"

tw_status tw_walk_floats(tw_walk *walk, const char *what, const tw_scheme_tensor *tensor, tw_state_kind kind,
                         float *values)
{
    tw_remembered entry = {
        .what = what, .tensor = tensor->name, .kind = kind, .dtype = TW_F32, .count = tensor->count, .data = values};
    return walk->visit(walk, &entry);
}
