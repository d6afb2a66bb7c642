/* moments.h - selecting while the first two moments are taken (SDAGC). A part of the table in kernels.h; its rules
 * hold. */
#ifndef TW_KERNELS_MOMENTS_H
#define TW_KERNELS_MOMENTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct tw_moments_rows {
    int none;
} tw_moments_rows;

/* The reference. */
extern const tw_moments_rows tw_moments_scalar;

#endif
