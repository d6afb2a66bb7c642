/* values.h - how the values of a section are written. The codes are tw_value_code's, in its order. */
#ifndef TW_WIRE_VALUES_H
#define TW_WIRE_VALUES_H

#include "packet.h"

/* Bytes a value takes. */
size_t tw_value_bytes(tw_value_code code);
/* dst holds k * tw_value_bytes(code). */
void tw_values_write(unsigned char *dst, const float *value, size_t k, tw_value_code code);
void tw_values_read(const unsigned char *src, float *value, size_t k, tw_value_code code);
/* 1 when none of them is NaN or infinite. */
int tw_values_finite(const float *value, size_t k);

#endif
