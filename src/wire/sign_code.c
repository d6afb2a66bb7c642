/* One bit a value and the mean magnitude of all of them, as signSGD and its kin send (Bernstein et al. 2018; with the
 * error kept by the sender, Karimireddy et al. 2019): the magnitude in bf16, then the signs, 1 for minus. */
#include "bits.h"
#include "half.h"
#include "values.h"

enum { MAGNITUDE_BYTES = 2, LANES = 8, INFINITE = 0x7F80 }; /* bf16 */

static const uint32_t SIGN_BIT = 0x80000000u;

static size_t sign_bytes(size_t k)
{
    return k ? MAGNITUDE_BYTES + (k + 7) / 8 : 0;
}

/* As it travels. In double, so that k equal magnitudes have exactly that mean. Lane by lane, so that the order of the
 * additions, and with it the result, is the same however many of them a processor makes at once. */
static uint16_t mean_magnitude(const float *value, size_t k)
{
    double lane[LANES] = {0}, sum = 0;
    size_t whole = k - k % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t j = 0; j < LANES; j++) lane[j] += tw_magnitude(value[i + j]);
    for (size_t i = whole; i < k; i++) lane[i - whole] += tw_magnitude(value[i]);
    for (size_t j = 0; j < LANES; j++) sum += lane[j];
    return tw_to_bf16_finite((float)(sum / (double)k));
}

static unsigned char pack_signs(const float *value, size_t count)
{
    uint32_t bits = 0;
    for (size_t j = 0; j < count; j++) bits |= tw_float_bits(value[j]) >> 31 << j;
    return (unsigned char)bits;
}

static void sign_write(unsigned char *dst, const float *value, size_t k)
{
    if (k == 0) return;
    uint16_t magnitude = mean_magnitude(value, k);
    memcpy(dst, &magnitude, MAGNITUDE_BYTES);
    dst += MAGNITUDE_BYTES;
    size_t whole = k - k % 8;
    for (size_t i = 0; i < whole; i += 8) *dst++ = pack_signs(value + i, 8);
    if (whole < k) *dst = pack_signs(value + whole, k - whole);
}

static void unpack_signs(uint32_t bits, uint16_t magnitude, float *value, size_t count)
{
    uint32_t positive = (uint32_t)magnitude << 16;
    for (size_t j = 0; j < count; j++) value[j] = tw_bits_float(positive | (bits & 1u << j ? SIGN_BIT : 0));
}

static const char *sign_read(const unsigned char *src, float *value, size_t k)
{
    if (k == 0) return NULL;
    uint16_t magnitude;
    memcpy(&magnitude, src, MAGNITUDE_BYTES);
    src += MAGNITUDE_BYTES;
    if (magnitude >= INFINITE) return "the magnitude of its values is negative, NaN or infinite";
    if (k % 8 && src[k / 8] >> k % 8) return "its signs have padding that is not zero";
    size_t whole = k - k % 8;
    for (size_t i = 0; i < whole; i += 8) unpack_signs(*src++, magnitude, value + i, 8);
    if (whole < k) unpack_signs(*src, magnitude, value + whole, k - whole);
    return NULL;
}

static void sign_round(float *value, size_t k)
{
    if (k == 0) return;
    uint32_t magnitude = tw_float_bits(tw_from_bf16(mean_magnitude(value, k)));
    for (size_t i = 0; i < k; i++) value[i] = tw_bits_float(magnitude | (tw_float_bits(value[i]) & SIGN_BIT));
}

const tw_value_row tw_values_sign = {sign_bytes, sign_write, sign_read, sign_round};
