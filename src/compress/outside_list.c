/* The schemes from outside that this process knows. They are never taken off the list, so readers need no lock. */
#include "outside.h"

#include <stdatomic.h>
#include <string.h>

static tw_outside *list[TW_MOST_OUTSIDE];
static atomic_size_t listed; /* written behind what it counts */

const tw_scheme_ops *tw_outside_at(size_t index)
{
    return index < atomic_load_explicit(&listed, memory_order_acquire) ? &list[index]->ops : NULL;
}

size_t tw_outside_count(void)
{
    return atomic_load_explicit(&listed, memory_order_relaxed);
}

void tw_outside_add(tw_outside *const *made, size_t count)
{
    size_t before = tw_outside_count();
    memcpy(list + before, made, count * sizeof *made);
    atomic_store_explicit(&listed, before + count, memory_order_release);
}
