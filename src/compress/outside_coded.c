/* Schemes from outside that code every element: their sections go the way of the library's own quantised schemes. */
#include "outside.h"

#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "quantised.h"
#include "smaller.h"
#include "sparse.h"

#include <math.h>
#include <string.h>

enum { BLOCK = TW_QUANTISED_BLOCK };
_Static_assert((int)BLOCK == TW_SCHEME_BLOCK, "decode is promised where blocks begin");

typedef struct coded {
    tw_quantised quantised;
    float *scratch;   /* without feedback: a part's values as they are to be encoded */
    uint64_t encoded; /* the last step in which it encoded a part, by scheme->begun */
} coded;

static const tw_option options[] = {
    TW_OPTION_FEEDBACK(tw_quantised, "on"),
    TW_OPTION_EXCHANGE,
};

/* ---- sections ---------------------------------------------------------------------------------------------------- */

static size_t bytes(const tw_scheme *scheme, size_t n)
{
    return tw_outside_definition(scheme)->section_bytes(tw_outside_self(scheme), n);
}

static void outside_coded_decode(const tw_scheme *scheme, const unsigned char *section, size_t n, size_t first,
                                 size_t count, float *values)
{
    tw_outside_definition(scheme)->decode(tw_outside_self(scheme), section, n, first, count, values);
}

/* Takes what the section says out of the residual. */
static void settle_residual(const tw_scheme *scheme, const tw_quantised_part *part, const unsigned char *section)
{
    float sent[BLOCK];
    for (size_t first = 0; first < part->n; first += BLOCK) {
        size_t count = tw_smaller(part->n - first, BLOCK);
        outside_coded_decode(scheme, section, part->n, first, count, sent);
        tw_kernels_best()->quantise->accumulate(part->residual + first, sent, count, -1);
    }
}

/* No two parts, ranks or steps have the same. */
static uint64_t noise_of(const tw_scheme *scheme, const tw_quantised_part *part)
{
    uint32_t words[4];
    tw_random(part->first, part->stream, scheme->step, words);
    return (uint64_t)words[1] << 32 | words[0];
}

static void outside_coded_encode(tw_quantised *quantised, const tw_quantised_part *part, unsigned char *section)
{
    const tw_scheme *scheme = &quantised->scheme;
    float *values = part->residual ? part->residual : ((coded *)quantised)->scratch;
    ((coded *)quantised)->encoded = scheme->begun;
    if (!part->residual) memset(values, 0, part->n * sizeof *values);
    tw_kernels_best()->quantise->accumulate(values, part->values, part->n, part->scale);
    tw_outside_definition(scheme)->encode(tw_outside_self(scheme), values, part->n, noise_of(scheme, part), section);
    if (part->residual) settle_residual(scheme, part, section);
}

/* Whatever the bytes are, no value of them that is not finite is added. */
static const char *outside_coded_check(const tw_scheme *scheme, const unsigned char *section, size_t n, float *largest)
{
    const tw_scheme_definition *definition = tw_outside_definition(scheme);
    const char *wrong = definition->inspect ? definition->inspect(tw_outside_self(scheme), section, n) : NULL;
    float values[BLOCK];
    *largest = 0;
    for (size_t first = 0; !wrong && first < n; first += BLOCK) {
        size_t count = tw_smaller(n - first, BLOCK);
        outside_coded_decode(scheme, section, n, first, count, values);
        if (!tw_kernels_best()->all_finite(values, count)) return "it holds NaN or infinity";
        *largest = fmaxf(*largest, tw_kernels_best()->quantise->peak(values, count));
    }
    return wrong;
}

static void outside_coded_add(const tw_scheme *scheme, const unsigned char *section, size_t n, size_t first,
                              const tw_addition *to)
{
    float values[BLOCK];
    outside_coded_decode(scheme, section, n, first, to->n, values);
    for (size_t i = 0; i < to->n; i++) to->dst[i] = to->sum[i] + values[i];
}

static const tw_quantised_ops sections = {
    .block = BLOCK,
    .bytes = bytes,
    .encode = outside_coded_encode,
    .check = outside_coded_check,
    .add = outside_coded_add,
};

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

static tw_status create_scratch(coded *self)
{
    const tw_scheme *scheme = &self->quantised.scheme;
    size_t most = 0;
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed && scheme->tensors[i].count > most) most = scheme->tensors[i].count;
    return tw_allocate(most, sizeof *self->scratch, &self->scratch);
}

/* A section of zeros is what stands for a tensor that a rank has no gradient for. */
static tw_status check_zeros(const tw_scheme *scheme)
{
    unsigned char *section;
    float largest;
    TW_TRY(tw_allocate(bytes(scheme, BLOCK), 1, &section));
    const char *wrong = outside_coded_check(scheme, section, BLOCK, &largest);
    tw_free(section);
    if (!wrong && largest == 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "scheme %s: a section of zero bytes must say zeros", scheme->ops->name);
}

static tw_status outside_coded_create(tw_scheme *scheme)
{
    coded *self = (coded *)scheme;
    TW_TRY(tw_quantised_create(scheme, &sections));
    if (!self->quantised.feedback) TW_TRY(create_scratch(self));
    TW_TRY(tw_outside_create(scheme));
    return check_zeros(scheme); /* decode may need what the definition's create has made */
}

static void outside_coded_destroy(tw_scheme *scheme)
{
    tw_outside_destroy(scheme);
    tw_free(((coded *)scheme)->scratch);
    tw_quantised_destroy(scheme);
}

static void outside_coded_revert(tw_scheme *scheme)
{
    tw_quantised_revert(scheme);
    if (((coded *)scheme)->encoded == scheme->begun) tw_outside_revert(scheme);
}

static tw_status outside_coded_walk(tw_scheme *scheme, tw_walk *visitor)
{
    TW_TRY(tw_quantised_walk(scheme, visitor));
    return tw_outside_walk(scheme, visitor);
}

const tw_scheme_ops tw_outside_coded = {
    .struct_size = sizeof(coded),
    TW_OPTIONS(options),
    .create = outside_coded_create,
    .next = tw_quantised_next,
    .revert = outside_coded_revert,
    .walk = outside_coded_walk,
    .plan = tw_quantised_plan,
    .destroy = outside_coded_destroy,
};
