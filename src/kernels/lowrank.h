/* lowrank.h - products of a tall matrix with a few columns (PowerSGD). A part of the table in kernels.h; its rules
 * hold. */
#ifndef TW_KERNELS_LOWRANK_H
#define TW_KERNELS_LOWRANK_H

#include <stddef.h>
#include <stdint.h>

typedef struct tw_lowrank_rows {
    int none;
} tw_lowrank_rows;

/* The reference. */
extern const tw_lowrank_rows tw_lowrank_scalar;

#endif
