/* precision.h - what matrix products and convolutions are computed in. Everything else is always fp32. */
#ifndef NN_PRECISION_H
#define NN_PRECISION_H

#include <stddef.h>
#include <thinwire/thinwire.h>

typedef enum nn_precision {
    NN_FP32,
    NN_BF16 /* operands are rounded to bfloat16, to nearest; their products are added up in fp32 */
} nn_precision;

/* *native: whether oneDNN has instructions for bf16 products on this processor (AVX512_BF16 or AMX), rather than
 * emulating them, which is slower than fp32. `implementation` receives oneDNN's name for what it would use, "" for
 * nothing. TW_ERROR_MEMORY: that could not be found out. */
tw_status nn_find_bf16(int *native, char *implementation, size_t capacity);

#endif
