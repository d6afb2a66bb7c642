/* allreduce - no compression: the mean of the gradients, in fp32, summed in rank order. What the others are compared
 * with. */
#include "dense.h"

typedef struct allreduce {
    tw_scheme scheme;
    tw_dense dense;
} allreduce;

static tw_status allreduce_create(tw_scheme *scheme)
{
    allreduce *self = (allreduce *)scheme;
    return tw_dense_create(&self->dense, scheme, (tw_dense_settings){.dtype = TW_F32});
}

/* Of a rank alone the gradients, where they lie in place, are what they were when the step began. */
static int allreduce_take(const allreduce *self)
{
    const tw_scheme *scheme = &self->scheme;
    return scheme->size == 1 && self->dense.place ? scheme->finite : tw_dense_unpack(&self->dense);
}

static tw_status allreduce_next(tw_scheme *scheme, tw_round *round)
{
    allreduce *self = (allreduce *)scheme;
    if (scheme->phase++ == 0) {
        tw_dense_pack(&self->dense, scheme->scale, round);
        scheme->account.exact_bytes = tw_dense_bytes(&self->dense);
        return TW_OK;
    }
    scheme->skipped = !allreduce_take(self);
    round->kind = TW_ROUND_DONE;
    return TW_OK;
}

static void allreduce_destroy(tw_scheme *scheme)
{
    tw_dense_destroy(&((allreduce *)scheme)->dense);
}

const tw_scheme_ops tw_scheme_allreduce = {
    .name = "allreduce",
    .summary = "no compression: exact mean of fp32 gradients",
    .floor_bytes = 8,
    .struct_size = sizeof(allreduce),
    .create = allreduce_create,
    .next = allreduce_next,
    .destroy = allreduce_destroy,
};
