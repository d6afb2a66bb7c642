/* quantise.h - every element in a few bits (sign, 1-bit, QSGD, TernGrad, natural compression). A part of the table in
 * kernels.h; its rules hold. */
#ifndef TW_KERNELS_QUANTISE_H
#define TW_KERNELS_QUANTISE_H

#include <stddef.h>
#include <stdint.h>

typedef struct tw_quantise_rows {
    int none;
} tw_quantise_rows;

/* The reference. */
extern const tw_quantise_rows tw_quantise_scalar;

#endif
