/* Schemes from outside that have rounds of their own. The library has the round of the tensors that are left out, and
 * looks at what comes out. */
#include "outside.h"

#include "error.h"
#include "kernels.h"
#include "leftovers.h"

#include <stdio.h>

typedef struct rounds {
    tw_scheme scheme;
    size_t compressed; /* elements of compressed tensors */
    int is_last;       /* the round under way is that of the leftovers */
    int has_begun;     /* the definition's rounds of this step have: there is something to take back */
    tw_dense leftovers;
} rounds;

static tw_status outside_rounds_create(tw_scheme *scheme)
{
    rounds *self = (rounds *)scheme;
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) self->compressed += scheme->tensors[i].count;
    TW_TRY(tw_leftovers_create(&self->leftovers, scheme));
    return tw_outside_create(scheme);
}

static void outside_rounds_destroy(tw_scheme *scheme)
{
    tw_outside_destroy(scheme);
    tw_dense_destroy(&((rounds *)scheme)->leftovers);
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

static int is_values(const tw_round *round)
{
    return round->values && (round->dtype == TW_F32 || round->dtype == TW_F16 || round->dtype == TW_BF16);
}

static int is_packet(const tw_round *round)
{
    return (round->data || round->size == 0) && round->size <= round->capacity;
}

/* What is asked of the collectives is something that they can do. */
static int is_sound(const tw_scheme *scheme, const tw_round *round)
{
    switch (round->kind) {
    case TW_ROUND_DONE:
        return 1;
    case TW_ROUND_ALLREDUCE:
        return is_values(round);
    case TW_ROUND_ALLGATHER:
        return is_packet(round);
    case TW_ROUND_BROADCAST:
        return round->root >= 0 && round->root < scheme->size && (round->root != scheme->rank || is_packet(round));
    case TW_ROUND_ALLTOALL:
        return round->packets && round->sizes;
    }
    return 0;
}

static void add_up(tw_account *account, const tw_scheme *scheme, const tw_round *round)
{
    int sends = round->kind == TW_ROUND_ALLGATHER || (round->kind == TW_ROUND_BROADCAST && round->root == scheme->rank);
    if (round->kind == TW_ROUND_ALLREDUCE) {
        account->elements_sent += round->count;
        account->packet_bytes += round->count * tw_dense_width(round->dtype);
    }
    if (sends) account->packet_bytes += round->size;
    for (int r = 0; round->kind == TW_ROUND_ALLTOALL && r < scheme->size; r++) account->packet_bytes += round->sizes[r];
}

/* What comes out is looked at: the next step must not begin with a NaN that nobody told of. */
static void look_at_sums(tw_scheme *scheme)
{
    for (size_t i = 0; !scheme->skipped && i < scheme->count; i++)
        if (scheme->tensors[i].compressed)
            scheme->skipped = !tw_kernels_best()->all_finite(scheme->gradients[i], scheme->tensors[i].count);
}

static tw_status outside_rounds_ask(rounds *self, int phase, tw_round *round)
{
    tw_scheme *scheme = &self->scheme;
    self->has_begun = 1;
    TW_TRY(tw_outside_definition(scheme)->next(tw_outside_self(scheme), scheme, phase, round));
    if (!is_sound(scheme, round))
        return tw_fail(TW_ERROR_ARGUMENT, "scheme %s: round %d asks for what no collective does", scheme->ops->name,
                       phase);
    add_up(&scheme->account, scheme, round);
    if (round->kind == TW_ROUND_DONE) look_at_sums(scheme);
    return TW_OK;
}

static tw_status outside_rounds_next(tw_scheme *scheme, tw_round *round)
{
    rounds *self = (rounds *)scheme;
    int phase = scheme->phase++;
    if (phase == 0) self->is_last = self->has_begun = 0;
    round->kind = TW_ROUND_DONE;
    if (self->is_last) {
        scheme->skipped = !tw_dense_unpack(&self->leftovers);
        return TW_OK;
    }
    if (self->compressed) TW_TRY(outside_rounds_ask(self, phase, round));
    if (round->kind != TW_ROUND_DONE || scheme->skipped || !self->leftovers.count) return TW_OK;
    self->is_last = 1;
    tw_leftovers_pack(&self->leftovers, round);
    return TW_OK;
}

static void outside_rounds_revert(tw_scheme *scheme)
{
    rounds *self = (rounds *)scheme;
    if (self->has_begun) tw_outside_revert(scheme);
    tw_dense_revert(&self->leftovers);
}

static tw_status outside_rounds_walk(tw_scheme *scheme, tw_walk *visitor)
{
    TW_TRY(tw_outside_walk(scheme, visitor));
    return tw_dense_walk(&((rounds *)scheme)->leftovers, visitor);
}

static void outside_rounds_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    snprintf(text, capacity, "%s: %zu elements", scheme->ops->name, scheme->tensors[tensor].count);
}

const tw_scheme_ops tw_outside_rounds = {
    .struct_size = sizeof(rounds),
    .create = outside_rounds_create,
    .next = outside_rounds_next,
    .revert = outside_rounds_revert,
    .walk = outside_rounds_walk,
    .plan = outside_rounds_plan,
    .destroy = outside_rounds_destroy,
};
