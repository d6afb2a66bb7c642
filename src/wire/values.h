/* values.h - how the values of a section are written. A code is one row of the table in values.c; their numbers are
 * tw_value_code's. */
#ifndef TW_WIRE_VALUES_H
#define TW_WIRE_VALUES_H

#include "half.h"
#include "packet.h"

/* A block of k finite values, whose length depends on k alone. */
typedef struct tw_value_row {
    size_t (*bytes)(size_t k);
    void (*write)(unsigned char *dst, const float *value, size_t k);
    /* Reads a hostile block of bytes(k) bytes. NULL, or what is wrong with it. */
    const char *(*read)(const unsigned char *src, float *value, size_t k);
    /* Makes the values what `read` will give for what `write` writes of them. `write` keeps those as they are. */
    void (*round)(float *value, size_t k);
} tw_value_row;

extern const tw_value_row tw_values_log8, tw_values_sign, tw_values_lm2, tw_values_ref2;

void tw_values_write(unsigned char *dst, const float *value, size_t k, tw_value_code code);
const char *tw_values_read(const unsigned char *src, float *value, size_t k, tw_value_code code);
/* Of k values that are one of four each, two bits a value and zeros up to the last byte's end. */
const char *tw_values_read_two_bits(const unsigned char *src, const float level[4], float *value, size_t k);
/* 1 when none of them is NaN or infinite. */
static inline int tw_values_finite(const float *value, size_t k)
{
    int bad = 0;
    for (size_t i = 0; i < k; i++) bad |= (tw_float_bits(value[i]) & 0x7F800000) == 0x7F800000;
    return !bad;
}

#endif
