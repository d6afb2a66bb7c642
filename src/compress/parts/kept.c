#include "kept.h"

#include "memory.h"

#include <string.h>
#include <thinwire/thinwire_plugin.h>

tw_status tw_kept_create(tw_kept *kept, int format, size_t count)
{
    if (format == TW_KEPT_BF16) return tw_allocate(count, sizeof *kept->bf16, &kept->bf16);
    return tw_allocate(count, sizeof *kept->fp32, &kept->fp32);
}

void tw_kept_destroy(tw_kept *kept)
{
    tw_free(kept->fp32);
    tw_free(kept->bf16);
}

void tw_kept_clear(tw_kept kept, size_t count)
{
    if (kept.bf16)
        memset(kept.bf16, 0, count * sizeof *kept.bf16);
    else
        memset(kept.fp32, 0, count * sizeof *kept.fp32);
}

void tw_kept_copy(tw_kept dst, tw_kept src, size_t count)
{
    if (src.bf16)
        memcpy(dst.bf16, src.bf16, count * sizeof *src.bf16);
    else
        memcpy(dst.fp32, src.fp32, count * sizeof *src.fp32);
}

tw_noise tw_rounding_make(const tw_scheme *scheme, size_t tensor, int number, int64_t seed, tw_rounding_use use)
{
    uint32_t words[4];
    tw_random((uint64_t)seed, tw_scheme_stream(scheme, tensor, number), scheme->step * TW_ROUNDING_USES + use, words);
    return (tw_noise){{words[0], words[1]}, 0};
}

void tw_kept_read(tw_kept kept, size_t first, size_t n, float *dst)
{
    if (kept.bf16)
        tw_kernels_best()->from_bf16(dst, kept.bf16 + first, n);
    else
        memcpy(dst, kept.fp32 + first, n * sizeof *dst);
}

void tw_kept_scale(tw_kept kept, size_t first, size_t n, float a, const tw_noise *rounding)
{
    if (kept.bf16)
        tw_kernels_best()->rounded->scale(kept.bf16 + first, a, n, tw_rounding_from(rounding, first));
    else
        tw_kernels_best()->scale(kept.fp32 + first, a, n);
}

size_t tw_kept_look(tw_kept kept, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    const tw_kernels *kernels = tw_kernels_best();
    return kept.bf16 ? kernels->rounded->select(kept.bf16 + first, n, threshold, (uint32_t)first, index, value)
                     : kernels->select(kept.fp32 + first, n, threshold, (uint32_t)first, index, value);
}

static size_t kept_look(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    return tw_kept_look(*(const tw_kept *)context, first, n, threshold, index, value);
}

static void kept_peek(void *context, size_t first, size_t n, float *dst)
{
    tw_kept_read(*(const tw_kept *)context, first, n, dst);
}

tw_select_source tw_kept_source(tw_kept *kept)
{
    return (tw_select_source){kept, kept_look, kept_peek, kept_look};
}

tw_status tw_kept_walk(tw_walk *walk, const char *what, const tw_scheme_tensor *tensor, tw_kept kept)
{
    tw_remembered entry = {.what = what,
                           .tensor = tensor->name,
                           .kind = TW_STATE_ADDS,
                           .dtype = kept.bf16 ? TW_BF16 : TW_F32,
                           .count = tensor->count,
                           .data = kept.bf16 ? (void *)kept.bf16 : kept.fp32};
    return walk->visit(walk, &entry);
}
