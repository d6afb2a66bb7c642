/* kept.h - what a scheme remembers of each element: a float, or half of one (state=bf16), of which what is written is
 * rounded at random, so that its mean is what it should be. Whole blocks are the kernels' business; here are single
 * elements, and what both kinds have in common. */
#ifndef TW_KEPT_H
#define TW_KEPT_H

#include "half.h"
#include "kernels.h"
#include "scheme.h"
#include "select.h"

/* Of one tensor, or of several one after the other. One of the two is there. */
typedef struct tw_kept {
    float *fp32;
    uint16_t *bf16;
} tw_kept;

enum { TW_KEPT_FP32, TW_KEPT_BF16 };

/* Of the scheme's ops->floor: the gradient is read, and so many arrays are read and written. */
static inline unsigned tw_kept_floor(int format, unsigned arrays)
{
    size_t element = format == TW_KEPT_BF16 ? sizeof(uint16_t) : sizeof(float);
    return (unsigned)(sizeof(float) + 2 * element * arrays);
}

/* Zeros. */
tw_status tw_kept_create(tw_kept *kept, int format, size_t count);
void tw_kept_destroy(tw_kept *kept);
void tw_kept_clear(tw_kept kept, size_t count);
/* Of one format. */
void tw_kept_copy(tw_kept dst, tw_kept src, size_t count);

/* Key of a rounding in the tensor's stream `number`: see tw_scheme_stream. No two streams, tensors, steps or uses
 * within a step have the same; of an fp32 scheme it is not asked for. */
typedef enum tw_rounding_use {
    TW_ROUNDING_UPDATE,
    TW_ROUNDING_MOMENTUM,
    TW_ROUNDING_REVISION,
    TW_ROUNDING_SENT,
    TW_ROUNDING_DROPPED,
    TW_ROUNDING_REVERT,
    TW_ROUNDING_USES
} tw_rounding_use;
tw_noise tw_rounding_make(const tw_scheme *scheme, size_t tensor, int number, int64_t seed, tw_rounding_use use);

static inline tw_kept tw_kept_from(tw_kept kept, size_t first)
{
    return kept.bf16 ? (tw_kept){NULL, kept.bf16 + first} : (tw_kept){kept.fp32 + first, NULL};
}

static inline float tw_kept_get(tw_kept kept, size_t i)
{
    return kept.bf16 ? tw_from_bf16(kept.bf16[i]) : kept.fp32[i];
}

static inline void tw_kept_put(tw_kept kept, size_t i, float x, const tw_noise *rounding)
{
    if (kept.bf16)
        kept.bf16[i] = tw_to_bf16_random(x, tw_noise_at(rounding, i) >> 16);
    else
        kept.fp32[i] = x;
}

/* The same noise, for a row that begins at element `first`, a multiple of TW_NOISE_ROW. */
static inline tw_noise tw_rounding_from(const tw_noise *rounding, size_t first)
{
    return (tw_noise){{rounding->key[0], rounding->key[1]}, (uint32_t)first};
}

/* Writes elements first .. first+n to dst. */
void tw_kept_read(tw_kept kept, size_t first, size_t n, float *dst);
/* Multiplies them. */
void tw_kept_scale(tw_kept kept, size_t first, size_t n, float a, const tw_noise *rounding);
/* Lists them as the kernels' select does. */
size_t tw_kept_look(tw_kept kept, size_t first, size_t n, float threshold, uint32_t *index, float *value);
/* To select from as it is; *kept must outlive its use. */
tw_select_source tw_kept_source(tw_kept *kept);

/* Before element j of a list is read and written: asks for one further on. They lie far apart and are not in the cache,
 * so that several are waited for at once. */
static inline void tw_kept_fetch(tw_kept kept, const uint32_t *index, size_t j, size_t count)
{
    enum { AHEAD = 32 };
    uint32_t i = index[j + AHEAD < count ? j + AHEAD : j];
    __builtin_prefetch(kept.bf16 ? (const void *)&kept.bf16[i] : &kept.fp32[i], 1);
}

/* Visits a tensor's. */
tw_status tw_kept_walk(tw_walk *walk, const char *what, const tw_scheme_tensor *tensor, tw_kept kept);

#endif
