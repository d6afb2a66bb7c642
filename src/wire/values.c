#include "values.h"

#include "half.h"

static const char *refuse_nonfinite(const float *value, size_t k)
{
    return tw_values_finite(value, k) ? NULL : "a value is NaN or infinite";
}

static size_t bytes_fp32(size_t k)
{
    return 4 * k;
}

static void write_fp32(unsigned char *dst, const float *value, size_t k)
{
    memcpy(dst, value, 4 * k);
}

static const char *read_fp32(const unsigned char *src, float *value, size_t k)
{
    memcpy(value, src, 4 * k);
    return refuse_nonfinite(value, k);
}

static void round_fp32(float *value, size_t k)
{
    (void)value, (void)k;
}

static size_t bytes_half(size_t k)
{
    return 2 * k;
}

/* Writing, reading and rounding for a 16-bit form: the same three loops around two conversions. */
#define HALF_LOOPS(form)                                                                                               \
    static void write_##form(unsigned char *dst, const float *value, size_t k)                                         \
    {                                                                                                                  \
        for (size_t i = 0; i < k; i++) {                                                                               \
            uint16_t half = tw_to_##form##_finite(value[i]);                                                           \
            memcpy(dst + 2 * i, &half, 2);                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    static const char *read_##form(const unsigned char *src, float *value, size_t k)                                   \
    {                                                                                                                  \
        for (size_t i = 0; i < k; i++) {                                                                               \
            uint16_t half;                                                                                             \
            memcpy(&half, src + 2 * i, 2);                                                                             \
            value[i] = tw_from_##form(half);                                                                           \
        }                                                                                                              \
        return refuse_nonfinite(value, k);                                                                             \
    }                                                                                                                  \
    static void round_##form(float *value, size_t k)                                                                   \
    {                                                                                                                  \
        for (size_t i = 0; i < k; i++) value[i] = tw_from_##form(tw_to_##form##_finite(value[i]));                     \
    }

HALF_LOOPS(fp16)
HALF_LOOPS(bf16)

static const tw_value_row values_fp32 = {bytes_fp32, write_fp32, read_fp32, round_fp32},
                          values_fp16 = {bytes_half, write_fp16, read_fp16, round_fp16},
                          values_bf16 = {bytes_half, write_bf16, read_bf16, round_bf16};

static const tw_value_row *const rows[TW_VALUE_CODES] = {
    [TW_VALUES_FP32] = &values_fp32,    [TW_VALUES_FP16] = &values_fp16,    [TW_VALUES_BF16] = &values_bf16,
    [TW_VALUES_LOG8] = &tw_values_log8, [TW_VALUES_SIGN] = &tw_values_sign, [TW_VALUES_LM2] = &tw_values_lm2,
    [TW_VALUES_REF2] = &tw_values_ref2,
};

size_t tw_values_bytes(size_t k, tw_value_code code)
{
    return rows[code]->bytes(k);
}

void tw_values_write(unsigned char *dst, const float *value, size_t k, tw_value_code code)
{
    rows[code]->write(dst, value, k);
}

const char *tw_values_read(const unsigned char *src, float *value, size_t k, tw_value_code code)
{
    return rows[code]->read(src, value, k);
}

void tw_values_round(float *value, size_t k, tw_value_code code)
{
    rows[code]->round(value, k);
}
