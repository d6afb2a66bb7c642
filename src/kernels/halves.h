/* halves.h - a rank's share, on its way into half precision (fp16, bf16, leftovers). A part of the table in kernels.h,
 * which has one such group a format; its rules hold, and half.h says how to round. */
#ifndef TW_KERNELS_HALVES_H
#define TW_KERNELS_HALVES_H

#include <stddef.h>
#include <stdint.h>

typedef struct tw_half_rows {
    /* dst = a*g, rounded */
    void (*share)(uint16_t *dst, const float *g, size_t n, float a);
    /* With error feedback: v += a*g; dst = v, cut to -most .. most and rounded; v -= dst */
    void (*share_and_keep)(uint16_t *dst, float *v, const float *g, size_t n, float a, float most);
} tw_half_rows;

/* The reference. */
extern const tw_half_rows tw_fp16_scalar, tw_bf16_scalar;

#endif
