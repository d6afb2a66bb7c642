/* fp16, bf16 - every gradient rounded to half precision, summed in one all-reduce: half the bytes, for any number of
 * ranks. Shares g/N are rounded, added in fp32 in rank order, and the sum is rounded once more.
 *
 * fp16 keeps 11 bits and ends at 65,504; bf16 keeps 8 and reaches as far as fp32. Without feedback an overflow makes
 * the sum infinite and the step is skipped, as mixed-precision training has it (Micikevicius et al., ICLR 2018), but no
 * scaling of the loss follows: where gradients are that large take bf16, or feedback=on, which sends what fits and
 * keeps the rest, as it keeps what rounding loses. */
#include "dense.h"

#include <stdio.h>

typedef struct half {
    tw_scheme scheme;
    int feedback;
    tw_dense dense;
} half;

static const tw_option options[] = {
    {"feedback", TW_OPTION_SWITCH, offsetof(half, feedback), "off", 0, 0, NULL,
     "error feedback: what rounding loses is added to the next step's gradient"},
};

static tw_status half_create(tw_scheme *scheme, tw_dtype dtype)
{
    half *self = (half *)scheme;
    return tw_dense_create(&self->dense, scheme,
                           (tw_dense_settings){.compressed = 1, .dtype = dtype, .feedback = self->feedback});
}

static tw_status create_fp16(tw_scheme *scheme)
{
    return half_create(scheme, TW_F16);
}

static tw_status create_bf16(tw_scheme *scheme)
{
    return half_create(scheme, TW_BF16);
}

static tw_status half_next(tw_scheme *scheme, tw_round *round)
{
    half *self = (half *)scheme;
    if (scheme->phase++ == 0) {
        tw_dense_pack(&self->dense, scheme->scale, round);
        scheme->account.elements_sent = self->dense.count;
        scheme->account.packet_bytes = tw_dense_bytes(&self->dense);
        return TW_OK;
    }
    scheme->skipped = !tw_dense_unpack(&self->dense);
    round->kind = TW_ROUND_DONE;
    return TW_OK;
}

static void half_revert(tw_scheme *scheme)
{
    tw_dense_revert(&((half *)scheme)->dense);
}

static tw_status half_walk(tw_scheme *scheme, tw_walk *visitor)
{
    return tw_dense_walk(&((half *)scheme)->dense, visitor);
}

static void half_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    snprintf(text, capacity, "%s: all %zu elements", scheme->ops->name, scheme->tensors[tensor].count);
}

static void half_destroy(tw_scheme *scheme)
{
    tw_dense_destroy(&((half *)scheme)->dense);
}

/* The gradient is read, the halves are written. */
enum { FLOOR_BYTES = sizeof(float) + sizeof(uint16_t) };

#define HALF                                                                                                           \
    .every_tensor = 1, .floor_bytes = FLOOR_BYTES, .struct_size = sizeof(half), TW_OPTIONS(options),                   \
    .next = half_next, .revert = half_revert, .walk = half_walk, .plan = half_plan, .destroy = half_destroy

const tw_scheme_ops tw_scheme_fp16 = {
    .name = "fp16",
    .summary = "half precision: 11 bits, up to 65,504",
    .create = create_fp16,
    HALF,
};

const tw_scheme_ops tw_scheme_bf16 = {
    .name = "bf16",
    .summary = "half precision: 8 bits, the range of fp32",
    .create = create_bf16,
    HALF,
};
