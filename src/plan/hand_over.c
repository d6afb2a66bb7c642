/* What a reducer holds back, in the measure of gradients. */
#include "compress.h"
#include "error.h"
#include "plan.h"
#include "reducer.h"

#include <string.h>

typedef struct hand {
    const tw_reducer *reducer;
    float *const *gradients;
} hand;

/* Of which tensor's elements an entry is; the count of all where it is of none. */
static size_t index_of(const tw_reducer *reducer, const tw_remembered *entry)
{
    size_t i;
    for (size_t m = 0; m < reducer->message_count; m++)
        if (tw_scheme_find_elements(reducer->messages[m].scheme, entry, &i)) return reducer->messages[m].first + i;
    return reducer->count;
}

/* A momentum of which no step keeps anything, and which has been sent or is in the residual. A scheme from outside may
 * call anything so. */
static int is_last_gradient(const tw_reducer *reducer, const tw_remembered *entry)
{
    return strcmp(entry->what, "momentum") == 0 && !reducer->messages[0].scheme->ops->outside;
}

/* Schemes hold parts of a mean over the hosts, and what the first rank of a host has goes into one over all ranks. */
static tw_status hand_over_one(void *context, const tw_remembered *entry)
{
    const hand *self = context;
    if (entry->kind != TW_STATE_ADDS || is_last_gradient(self->reducer, entry)) return TW_OK;
    const size_t index = index_of(self->reducer, entry);
    const float parts = (float)self->reducer->size;
    if (index == self->reducer->count)
        return tw_fail(TW_ERROR_UNSUPPORTED, "%s/%s is no part of a gradient", entry->what, entry->tensor);
    float *dst = self->gradients[index] + entry->first;
    for (size_t i = 0; i < entry->count; i++) dst[i] += parts * (float)tw_remembered_value(entry, i);
    return TW_OK;
}

tw_status tw_reducer_hand_over(tw_reducer *reducer, float *const *gradients)
{
    hand self = {reducer, gradients};
    TW_TRY(tw_reducer_need(reducer));
    TW_TRY(tw_need(gradients, "gradients"));
    for (size_t i = 0; i < reducer->count; i++) TW_TRY(tw_need(gradients[i], "gradients"));
    if (tw_reducer_momentum(reducer, NULL) > 0)
        return tw_fail(TW_ERROR_UNSUPPORTED, "the scheme has moments of its own, and what it holds is no gradient");
    return tw_reducer_visit_state(reducer, hand_over_one, &self);
}
