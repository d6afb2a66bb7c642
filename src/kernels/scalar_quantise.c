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
    uint32_t largest = 0, magnitude;
    for (size_t i = 0; i < n; i++) {
        magnitude = tw_float_bits(x[i]) & 0x7FFFFFFFu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return tw_bits_float(largest);
}

/* ---- where codes lie --------------------------------------------------------------------------------------------- */

/* Where a code of some bits is: its first bit, counted in the bytes of its lane or, behind the last whole group, in all
 * that are there. */
typedef struct place {
    size_t bit, lane;
    size_t start; /* the first byte of the group, or of what is behind the last */
    int grouped;
} place;

static place place_of(size_t i, size_t n, unsigned bits)
{
    size_t at = i % TW_PACK_GROUP, group = i - at;
    int grouped = group + TW_PACK_GROUP <= n;
    return (place){(grouped ? at / LANES : at) * bits, at % LANES, group / 8 * bits, grouped};
}

/* Which byte of all a byte of the place's is. */
static size_t byte_of(const place *p, size_t byte)
{
    return p->start + (p->grouped ? 4 * (byte / 4 * LANES + p->lane) + byte % 4 : byte);
}

/* Puts element i's code into bytes that are zero there. */
static void put_code(unsigned char *dst, size_t i, size_t n, unsigned bits, uint32_t code)
{
    place p = place_of(i, n, bits);
    size_t byte = p.bit / 8, shift = p.bit % 8;
    dst[byte_of(&p, byte)] |= (unsigned char)(code << shift);
    if (shift + bits > 8) dst[byte_of(&p, byte + 1)] |= (unsigned char)(code >> (8 - shift));
}

static uint32_t get_code(const unsigned char *src, size_t i, size_t n, unsigned bits)
{
    place p = place_of(i, n, bits);
    size_t byte = p.bit / 8, shift = p.bit % 8;
    uint32_t code = src[byte_of(&p, byte)];
    if (shift + bits > 8) code |= (uint32_t)src[byte_of(&p, byte + 1)] << 8;
    return code >> shift & ((1u << bits) - 1);
}

/* ---- signs ------------------------------------------------------------------------------------------------------- */

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
        put_code(bits, i, n, 1, (uint32_t)negative);
        sums->negatives += (size_t)negative;
    }
    for (size_t i = 0; i < whole; i += TW_PACK_GROUP) add_group(sums, v + i);
    for (size_t i = whole; i < n; i++) (v[i] < 0 ? sums->negative : sums->positive)[i % 16] += v[i];
}

static void take_signs(float *v, size_t n, const float sent[2])
{
    for (size_t i = 0; i < n; i++) v[i] -= sent[v[i] < 0];
}

static size_t fill_still(float *v, const float *alive, size_t n, float value)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (alive[i] > 0) continue;
        v[i] = value;
        count++;
    }
    return count;
}

static void add_signs(const tw_addition *to, const unsigned char *bits, const float value[2])
{
    for (size_t i = 0; i < to->n; i++) to->dst[i] = to->sum[i] + value[get_code(bits, i, to->n, 1)];
}

/* ---- levels and powers ------------------------------------------------------------------------------------------- */

/* Numbers have 24 bits behind the point. */
static uint32_t round_level(float level, uint32_t most, uint32_t random)
{
    return ((uint32_t)(int32_t)level + (most << 24) + (random >> 8)) >> 24;
}

static uint32_t most_of(const tw_levels *levels)
{
    return (1u << (levels->bits - 1)) - 1;
}

static void send_levels(unsigned char *codes, const float *x, size_t n, float a, const tw_levels *levels,
                        tw_noise noise)
{
    memset(codes, 0, (n * levels->bits + 7) / 8);
    for (size_t i = 0; i < n; i++) {
        float level = a * x[i] * (levels->factor[i / levels->bucket] * 0x1p24f);
        put_code(codes, i, n, levels->bits, round_level(level, most_of(levels), tw_noise_at(&noise, i)));
    }
}

static void add_levels(const tw_addition *to, const unsigned char *codes, const tw_levels *levels)
{
    for (size_t i = 0; i < to->n; i++) {
        int32_t level = (int32_t)(get_code(codes, i, to->n, levels->bits) - most_of(levels));
        to->dst[i] = to->sum[i] + (float)level * levels->factor[i / levels->bucket];
    }
}

/* A float's mantissa is how far it is from the power below it to the one above: adding random bits there carries into
 * the exponent with just that probability. Of a denormal number, the power below is 0. */
static void send_powers(unsigned char *codes, const float *x, size_t n, float a, float inverse, tw_noise noise)
{
    memset(codes, 0, n);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = tw_float_bits(a * x[i] * inverse);
        uint32_t power = (bits & 0x7FFFFFFFu) + (tw_noise_at(&noise, i) >> 9);
        put_code(codes, i, n, 8, (power >> 23 & 127) | bits >> 31 << 7);
    }
}

static void add_powers(const tw_addition *to, const unsigned char *codes, float top)
{
    for (size_t i = 0; i < to->n; i++) {
        uint32_t code = get_code(codes, i, to->n, 8);
        to->dst[i] = to->sum[i] + tw_bits_float((code & 127) << 23 | code >> 7 << 31) * top;
    }
}

static void send_e4m3(unsigned char *codes, const float *x, size_t n, float a, float inverse)
{
    memset(codes, 0, n);
    for (size_t i = 0; i < n; i++) put_code(codes, i, n, 8, tw_to_e4m3(a * x[i] * inverse));
}

static void add_e4m3(const tw_addition *to, const unsigned char *codes, float unit)
{
    for (size_t i = 0; i < to->n; i++)
        to->dst[i] = to->sum[i] + tw_from_e4m3((unsigned char)get_code(codes, i, to->n, 8)) * unit;
}

/* ---- trits ------------------------------------------------------------------------------------------------------- */

static const uint32_t powers_of_three[] = {1, 3, 9, 27, 81};

/* Where element i's trit is: the byte, and what it counts in it. */
static size_t trit_place(size_t i, size_t n, uint32_t *weight)
{
    size_t at = i % TW_TRIT_GROUP, group = i - at, row = at / LANES;
    int grouped = group + TW_TRIT_GROUP <= n;
    *weight = powers_of_three[(grouped ? row : at) % 5];
    return group / 5 + (grouped ? 4 * (at % LANES) + row / 5 : at / 5);
}

static void send_trits(unsigned char *bytes, const float *x, size_t n, float a, float inverse, tw_noise noise)
{
    memset(bytes, 0, (n + 4) / 5);
    for (size_t i = 0; i < n; i++) {
        float level = a * x[i] * (inverse * 0x1p24f);
        uint32_t weight, trit = round_level(fmaxf(fminf(level, 0x1p24f), -0x1p24f), 1, tw_noise_at(&noise, i));
        size_t byte = trit_place(i, n, &weight);
        bytes[byte] = (unsigned char)(bytes[byte] + trit * weight);
    }
}

static void add_trits(const tw_addition *to, const unsigned char *bytes, float unit)
{
    for (size_t i = 0; i < to->n; i++) {
        uint32_t weight, byte = bytes[trit_place(i, to->n, &weight)];
        to->dst[i] = to->sum[i] + (float)((int32_t)(byte / weight % 3) - 1) * unit;
    }
}

const tw_quantise_rows tw_quantise_scalar = {TW_QUANTISE_LOOPS};
