/* The reference of quantise.h. */
#include "quantise.h"

#include "fp8.h"
#include "half.h"
#include "rounded.h"

#include <math.h>
#include <string.h>

enum { LANES = TW_PACK_LANES };

/* Three multiplications with xor-shifts between them, the key in two places, so that two keys give two functions and
 * not one sequence shifted. Rounding needs uniform bits that neighbours, ranks and steps do not share, and no more: a
 * counter-based generator such as tw_random, which makes the keys, takes ten rounds. With two multiplications pairs of
 * elements were visibly not independent. The multipliers are the golden ratio and those of Wellons's lowbias32. */
static uint32_t hash(const tw_noise *noise, uint32_t number)
{
    uint32_t x = (number ^ noise->key[0]) * 0x9E3779B1u;
    x = ((x ^ x >> 15) + noise->key[1]) * 0x846CA68Bu;
    return (x ^ x >> 13) * 0x7FEB352Du;
}

uint32_t tw_noise_at(const tw_noise *noise, size_t i)
{
    uint32_t number = noise->first + (uint32_t)i, x = hash(noise, number & ~(uint32_t)LANES);
    return number & LANES ? x << 16 | x >> 16 : x;
}

static void accumulate(float *v, const float *g, size_t n, float a)
{
    for (size_t i = 0; i < n; i++) v[i] += a * g[i];
}

static float peak(const float *x, size_t n)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) > largest) largest = fabsf(x[i]);
    return largest;
}

/* ---- signs ------------------------------------------------------------------------------------------------------- */

/* Where element i's bit is, counted from the first of the packed bits. */
static size_t bit_place(size_t i, size_t n)
{
    size_t group = i / TW_PACK_GROUP * TW_PACK_GROUP, inside = i - group;
    if (group + TW_PACK_GROUP > n) return i;
    return group + inside % LANES * 32 + inside / LANES;
}

/* Updates an element and returns whether it is negative. */
static int send_element(float *v, float g, float a, const float sent[2])
{
    *v = (*v - sent[*v < 0]) + a * g;
    return *v < 0;
}

static void add_group(tw_sign_sums *sums, const float *v)
{
    float lane[2][LANES] = {{0}};
    for (size_t i = 0; i < TW_PACK_GROUP; i++) lane[v[i] < 0][i % LANES] += v[i];
    for (size_t i = 0; i < LANES; i++) {
        sums->positive[i % 16] += lane[0][i];
        sums->negative[i % 16] += lane[1][i];
    }
}

static void send_signs(float *v, const float *g, size_t n, float a, const float sent[2], unsigned char *bits,
                       tw_sign_sums *sums)
{
    size_t whole = n / TW_PACK_GROUP * TW_PACK_GROUP;
    memset(bits, 0, (n + 7) / 8);
    for (size_t i = 0; i < n; i++) {
        int negative = send_element(&v[i], g[i], a, sent);
        size_t place = bit_place(i, n);
        bits[place / 8] |= (unsigned char)(negative << place % 8);
        sums->negatives += (size_t)negative;
    }
    for (size_t i = 0; i < whole; i += TW_PACK_GROUP) add_group(sums, v + i);
    for (size_t i = whole; i < n; i++) (v[i] < 0 ? sums->negative : sums->positive)[i % 16] += v[i];
}

static void add_signs(float *sum, const unsigned char *bits, size_t n, const float value[2])
{
    for (size_t i = 0; i < n; i++) {
        size_t place = bit_place(i, n);
        sum[i] += value[bits[place / 8] >> place % 8 & 1];
    }
}

/* ---- levels and powers ------------------------------------------------------------------------------------------- */

/* Numbers have 24 bits behind the point. */
static uint32_t round_level(float level, uint32_t most, uint32_t random)
{
    return ((uint32_t)(int32_t)level + (most << 24) + (random >> 8)) >> 24;
}

static void dither(uint32_t *code, const float *x, size_t n, float a, float inverse, uint32_t most, tw_noise noise)
{
    for (size_t i = 0; i < n; i++) code[i] = round_level(a * x[i] * (inverse * 0x1p24f), most, tw_noise_at(&noise, i));
}

static void ternarise(uint32_t *code, const float *x, size_t n, float a, float inverse, tw_noise noise)
{
    for (size_t i = 0; i < n; i++) {
        float level = a * x[i] * (inverse * 0x1p24f);
        code[i] = round_level(fmaxf(fminf(level, 0x1p24f), -0x1p24f), 1, tw_noise_at(&noise, i));
    }
}

static void add_levels(float *sum, const uint32_t *code, size_t n, uint32_t most, float unit)
{
    for (size_t i = 0; i < n; i++) sum[i] += (float)(int32_t)(code[i] - most) * unit;
}

/* Where element i's byte is: as pack lays out codes of 8 bits. */
static size_t byte_place(size_t i, size_t n)
{
    size_t at = i % TW_PACK_GROUP, lane = at % LANES, row = at / LANES;
    return i < n / TW_PACK_GROUP * TW_PACK_GROUP ? i - at + 4 * (row / 4 * LANES + lane) + row % 4 : i;
}

/* A float's mantissa is how far it is from the power below it to the one above: adding random bits there carries into
 * the exponent with just that probability. Of a denormal number, the power below is 0. */
static void send_powers(unsigned char *codes, const float *x, size_t n, float a, float inverse, tw_noise noise)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = tw_float_bits(a * x[i] * inverse);
        uint32_t power = (bits & 0x7FFFFFFFu) + (tw_noise_at(&noise, i) >> 9);
        codes[byte_place(i, n)] = (unsigned char)((power >> 23 & 127) | bits >> 31 << 7);
    }
}

static void add_powers(float *sum, const unsigned char *codes, size_t n, float top)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t code = codes[byte_place(i, n)];
        sum[i] += tw_bits_float((code & 127) << 23 | code >> 7 << 31) * top;
    }
}

static void send_e4m3(unsigned char *codes, const float *x, size_t n, float a, float inverse)
{
    for (size_t i = 0; i < n; i++) codes[byte_place(i, n)] = tw_to_e4m3(a * x[i] * inverse);
}

static void add_e4m3(float *sum, const unsigned char *codes, size_t n, float unit)
{
    for (size_t i = 0; i < n; i++) sum[i] += tw_from_e4m3(codes[byte_place(i, n)]) * unit;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static void put_word(unsigned char *dst, size_t word, uint32_t value)
{
    memcpy(dst + 4 * word, &value, sizeof value);
}

static uint32_t get_word(const unsigned char *src, size_t word)
{
    uint32_t value;
    memcpy(&value, src + 4 * word, sizeof value);
    return value;
}

static void pack_lane(unsigned char *dst, const uint32_t *code, size_t lane, unsigned bits)
{
    uint64_t pending = 0;
    unsigned held = 0;
    size_t word = lane;
    for (size_t i = lane; i < TW_PACK_GROUP; i += LANES) {
        pending |= (uint64_t)code[i] << held;
        held += bits;
        if (held < 32) continue;
        put_word(dst, word, (uint32_t)pending);
        word += LANES;
        pending >>= 32;
        held -= 32;
    }
}

static void unpack_lane(uint32_t *code, const unsigned char *src, size_t lane, unsigned bits)
{
    uint64_t pending = 0;
    unsigned held = 0;
    size_t word = lane;
    for (size_t i = lane; i < TW_PACK_GROUP; i += LANES) {
        if (held < bits) {
            pending |= (uint64_t)get_word(src, word) << held;
            word += LANES;
            held += 32;
        }
        code[i] = (uint32_t)pending & ((1u << bits) - 1);
        pending >>= bits;
        held -= bits;
    }
}

static void pack(unsigned char *dst, const uint32_t *code, size_t n, unsigned bits)
{
    for (; n >= TW_PACK_GROUP; n -= TW_PACK_GROUP, code += TW_PACK_GROUP, dst += (size_t)bits * TW_PACK_GROUP / 8)
        for (size_t lane = 0; lane < LANES; lane++) pack_lane(dst, code, lane, bits);
    uint32_t pending = 0;
    unsigned held = 0;
    for (size_t i = 0; i < n; i++) {
        pending |= code[i] << held;
        for (held += bits; held >= 8; held -= 8, pending >>= 8) *dst++ = (unsigned char)pending;
    }
    if (held) *dst = (unsigned char)pending;
}

static void unpack(uint32_t *code, const unsigned char *src, size_t n, unsigned bits)
{
    for (; n >= TW_PACK_GROUP; n -= TW_PACK_GROUP, code += TW_PACK_GROUP, src += (size_t)bits * TW_PACK_GROUP / 8)
        for (size_t lane = 0; lane < LANES; lane++) unpack_lane(code, src, lane, bits);
    uint32_t pending = 0;
    unsigned held = 0;
    for (size_t i = 0; i < n; i++) {
        for (; held < bits; held += 8) pending |= (uint32_t)*src++ << held;
        code[i] = pending & ((1u << bits) - 1);
        pending >>= bits;
        held -= bits;
    }
}

/* The byte of up to five trits that are `stride` apart. */
static uint32_t join_trits(const uint32_t *code, size_t count, size_t stride)
{
    uint32_t byte = 0;
    for (size_t k = count; k-- > 0;) byte = 3 * byte + code[k * stride];
    return byte;
}

static void split_trits(uint32_t byte, uint32_t *code, size_t count, size_t stride)
{
    for (size_t k = 0; k < count; k++, byte /= 3) code[k * stride] = byte % 3;
}

static void pack_trits(unsigned char *dst, const uint32_t *code, size_t n)
{
    for (; n >= TW_TRIT_GROUP; n -= TW_TRIT_GROUP, code += TW_TRIT_GROUP, dst += TW_TRIT_GROUP / 5)
        for (size_t lane = 0; lane < LANES; lane++)
            for (size_t byte = 0; byte < 4; byte++)
                dst[4 * lane + byte] = (unsigned char)join_trits(code + 5 * byte * LANES + lane, 5, LANES);
    for (size_t i = 0; i < n; i += 5) *dst++ = (unsigned char)join_trits(code + i, n - i < 5 ? n - i : 5, 1);
}

static void unpack_trits(uint32_t *code, const unsigned char *src, size_t n)
{
    for (; n >= TW_TRIT_GROUP; n -= TW_TRIT_GROUP, code += TW_TRIT_GROUP, src += TW_TRIT_GROUP / 5)
        for (size_t lane = 0; lane < LANES; lane++)
            for (size_t byte = 0; byte < 4; byte++)
                split_trits(src[4 * lane + byte], code + 5 * byte * LANES + lane, 5, LANES);
    for (size_t i = 0; i < n; i += 5) split_trits(*src++, code + i, n - i < 5 ? n - i : 5, 1);
}

const tw_quantise_rows tw_quantise_scalar = {TW_QUANTISE_LOOPS};
