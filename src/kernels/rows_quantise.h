/* rows_quantise.h - the rows of quantise.h for a vector level; see rows.h, which includes it. */

#include "fp8.h"

/* A row of a group is what its lanes hold of one position: PACK_PARTS vectors. A group has 32 rows of bits, 20 of
 * trits. */
enum { PACK_PARTS = TW_PACK_LANES / WIDTH, PACK_BYTES = 4 * TW_PACK_LANES, GROUP = TW_PACK_GROUP };

typedef int32_t integer_vector __attribute__((vector_size(WIDTH * 4)));

TW_INLINE word_vector load_words(const void *src)
{
    word_vector x;
    memcpy(&x, src, sizeof x);
    return x;
}

TW_INLINE void store_words(void *dst, word_vector x)
{
    memcpy(dst, &x, sizeof x);
}

/* yes in the lanes where mask is all ones, no where it is zero */
TW_INLINE vector blend(word_vector mask, vector yes, vector no)
{
    return (vector)choose(mask, (word_vector)yes, (word_vector)no);
}

TW_INLINE word_vector hash(const tw_noise *noise, word_vector number)
{
    word_vector x = (number ^ noise->key[0]) * 0x9E3779B1u;
    x = ((x ^ x >> 15) + noise->key[1]) * 0x846CA68Bu;
    return (x ^ x >> 13) * 0x7FEB352Du;
}

static void accumulate(float *v, const float *g, size_t n, float a)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) updated(TW_ACCUMULATE, v + i, v + i, g + i, a, 0);
    tw_quantise_scalar.accumulate(v + whole, g + whole, n - whole, a);
}

/* As many maxima as a block has vectors: each comparison waits for the one before it. */
static float peak(const float *x, size_t n)
{
    size_t whole = n / BLOCK * BLOCK;
    vector largest[BLOCK / WIDTH] = {0};
    for (size_t i = 0; i < whole; i += BLOCK)
        for (size_t k = 0; k < BLOCK / WIDTH; k++)
            largest[k] = larger((vector)(load_words(x + i + k * WIDTH) & 0x7FFFFFFFu), largest[k]);
    for (size_t k = 1; k < BLOCK / WIDTH; k++) largest[0] = larger(largest[k], largest[0]);
    float most = tw_quantise_scalar.peak(x + whole, n - whole), lanes[WIDTH];
    store(lanes, largest[0]);
    for (size_t half = WIDTH / 2; half > 0; half /= 2)
        for (size_t lane = 0; lane < half; lane++)
            lanes[lane] = lanes[lane] > lanes[lane + half] ? lanes[lane] : lanes[lane + half];
    return most > lanes[0] ? most : lanes[0];
}

/* ---- signs ------------------------------------------------------------------------------------------------------- */

/* One part of a group's lanes under way. */
typedef struct sign_part {
    vector positive, negative; /* sums */
    word_vector packed, negatives;
} sign_part;

/* Updates the vector at v and takes it in. */
TW_INLINE void send_row(sign_part *part, float *v, const float *g, float a, const vector sent[2], unsigned row)
{
    vector before = load(v), step = a * load(g);
    vector now = before - blend((word_vector)(before < 0.0f), sent[1], sent[0]) + step;
    word_vector negative = (word_vector)(now < 0.0f);
    store(v, now);
    part->negative += (vector)((word_vector)now & negative);
    part->positive += (vector)((word_vector)now & ~negative);
    part->packed |= negative & 1u << row;
    part->negatives -= negative;
}

static void add_part(tw_sign_sums *sums, const sign_part *part, size_t lane)
{
    for (size_t k = 0; k < WIDTH; k++) {
        sums->positive[(lane + k) % 16] += part->positive[k];
        sums->negative[(lane + k) % 16] += part->negative[k];
        sums->negatives += part->negatives[k];
    }
}

static void send_signs(float *v, const float *g, size_t n, float a, const float sent[2], unsigned char *bits,
                       tw_sign_sums *sums)
{
    const vector wide_sent[2] = {broadcast(sent[0]), broadcast(sent[1])};
    size_t whole = n / GROUP * GROUP;
    for (size_t group = 0; group < whole; group += GROUP) {
        sign_part parts[PACK_PARTS] = {0};
        for (unsigned row = 0; row < 32; row++)
            for (size_t part = 0; part < PACK_PARTS; part++) {
                size_t i = group + (size_t)row * TW_PACK_LANES + part * WIDTH;
                send_row(&parts[part], v + i, g + i, a, wide_sent, row);
            }
        for (size_t part = 0; part < PACK_PARTS; part++) {
            store_words(bits + group / 8 + 4 * part * WIDTH, parts[part].packed);
            add_part(sums, &parts[part], part * WIDTH);
        }
    }
    tw_quantise_scalar.send_signs(v + whole, g + whole, n - whole, a, sent, bits + whole / 8, sums);
}

static void add_signs(float *sum, const unsigned char *bits, size_t n, const float value[2])
{
    const vector positive = broadcast(value[0]), negative = broadcast(value[1]);
    size_t whole = n / GROUP * GROUP;
    for (size_t group = 0; group < whole; group += GROUP)
        for (size_t part = 0; part < PACK_PARTS; part++) {
            word_vector packed = load_words(bits + group / 8 + part * sizeof packed);
            for (size_t row = 0; row < 32; row++) {
                float *at = sum + group + row * TW_PACK_LANES + part * WIDTH;
                word_vector is_negative = -(packed >> row & 1u);
                store(at, load(at) + blend(is_negative, negative, positive));
            }
        }
    tw_quantise_scalar.add_signs(sum + whole, bits + whole / 8, n - whole, value);
}

/* ---- levels and powers ------------------------------------------------------------------------------------------- */

/* How a*x becomes a code; `most` is for levels alone. */
typedef struct rounding {
    float a, factor;
    uint32_t most;
} rounding;

typedef word_vector (*round_vector)(vector scaled, uint32_t most, word_vector random);

/* Who needs a block's peak first reads it twice: the second time, here, memory would idle. */
TW_INLINE void fetch_next_block(const float *x, size_t n)
{
    enum { LINE = 64, BLOCK_BYTES = 4096 };      /* quantising schemes take 1,024 elements at a time */
    uintptr_t next = (uintptr_t)x + BLOCK_BYTES; /* a number: it may lie behind the array */
    for (size_t at = 0; at < n * sizeof *x; at += LINE) __builtin_prefetch((const void *)(next + at));
}

TW_INLINE word_vector swap_halves(word_vector random)
{
    return random << 16 | random >> 16;
}

/* Rounds the whole rows of 64; returns how many elements that are. */
TW_INLINE size_t round_rows(uint32_t *code, const float *x, size_t n, rounding how, tw_noise noise, round_vector round)
{
    size_t whole = n / TW_NOISE_ROW * TW_NOISE_ROW;
    word_vector number = lane_numbers() + noise.first;
    for (size_t row = 0; row < whole; row += TW_NOISE_ROW, number += TW_NOISE_ROW) {
        fetch_next_block(x + row, TW_NOISE_ROW);
        for (size_t part = 0; part < PACK_PARTS; part++) {
            size_t i = row + part * WIDTH, j = i + TW_PACK_LANES;
            word_vector random = hash(&noise, number + (uint32_t)(part * WIDTH));
            store_words(code + i, round(how.a * load(x + i) * how.factor, how.most, random));
            store_words(code + j, round(how.a * load(x + j) * how.factor, how.most, swap_halves(random)));
        }
    }
    return whole;
}

/* Numbers have 24 bits behind the point. */
TW_INLINE word_vector round_level(vector level, uint32_t most, word_vector random)
{
    return ((word_vector) __builtin_convertvector(level, integer_vector) + (most << 24) + (random >> 8)) >> 24;
}

static void dither(uint32_t *code, const float *x, size_t n, float a, float inverse, uint32_t most, tw_noise noise)
{
    size_t done = round_rows(code, x, n, (rounding){a, inverse * 0x1p24f, most}, noise, round_level);
    noise.first += (uint32_t)done;
    tw_quantise_scalar.dither(code + done, x + done, n - done, a, inverse, most, noise);
}

TW_INLINE word_vector round_trit(vector level, uint32_t most, word_vector random)
{
    const vector high = broadcast(0x1p24f), low = -high;
    return round_level((vector)larger((vector)smaller(level, high), low), most, random);
}

static void ternarise(uint32_t *code, const float *x, size_t n, float a, float inverse, tw_noise noise)
{
    size_t done = round_rows(code, x, n, (rounding){a, inverse * 0x1p24f, 1}, noise, round_trit);
    noise.first += (uint32_t)done;
    tw_quantise_scalar.ternarise(code + done, x + done, n - done, a, inverse, noise);
}

static void add_levels(float *sum, const uint32_t *code, size_t n, uint32_t most, float unit)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) {
        integer_vector level = (integer_vector)(load_words(code + i) - most);
        store(sum + i, load(sum + i) + __builtin_convertvector(level, vector) * unit);
    }
    tw_quantise_scalar.add_levels(sum + whole, code + whole, n - whole, most, unit);
}

/* Of at most 1 in size: the addition carries neither into the sign nor into the bit below it, and what follows moves
 * the sign there. */
TW_INLINE word_vector round_power(vector scaled, word_vector random)
{
    const word_vector power = (word_vector){0} + 127;
    word_vector sum = (word_vector)scaled + (random >> 9);
    return choose(power, sum >> 23, sum >> 24);
}

/* The words of four rows: those of the lanes at x, of which the first has that number, and those below. */
TW_INLINE word_vector round_word(const float *x, rounding how, const tw_noise *noise, word_vector number)
{
    word_vector word = {0};
    for (size_t row = 0; row < 4; row += 2) {
        const float *first = x + row * TW_PACK_LANES, *second = first + TW_PACK_LANES;
        word_vector random = hash(noise, number + (uint32_t)(row * TW_PACK_LANES));
        word |= round_power(how.a * load(first) * how.factor, random) << 8 * row;
        word |= round_power(how.a * load(second) * how.factor, swap_halves(random)) << 8 * (row + 1);
    }
    return word;
}

static void send_powers(unsigned char *codes, const float *x, size_t n, float a, float inverse, tw_noise noise)
{
    const rounding how = {.a = a, .factor = inverse};
    size_t whole = n / GROUP * GROUP;
    word_vector number = lane_numbers() + noise.first;
    for (size_t i = 0; i < whole; i += PACK_BYTES) { /* four rows fill a word a lane */
        fetch_next_block(x + i, PACK_BYTES);
        for (size_t part = 0; part < PACK_PARTS; part++, number += WIDTH)
            store_words(codes + i + 4 * part * WIDTH, round_word(x + i + part * WIDTH, how, &noise, number));
        number += PACK_BYTES - TW_PACK_LANES;
    }
    noise.first += (uint32_t)whole;
    tw_quantise_scalar.send_powers(codes + whole, x + whole, n - whole, a, inverse, noise);
}

static void add_powers(float *sum, const unsigned char *codes, size_t n, float top)
{
    size_t whole = n / GROUP * GROUP;
    for (size_t i = 0; i < whole; i += PACK_BYTES)
        for (size_t part = 0; part < PACK_PARTS; part++) {
            word_vector word = load_words(codes + i + 4 * part * WIDTH);
            for (size_t row = 0; row < 4; row++, word >>= 8) {
                float *at = sum + i + row * TW_PACK_LANES + part * WIDTH;
                vector power = (vector)((word & 127) << 23 | (word & 128) << 24);
                store(at, load(at) + power * top);
            }
        }
    tw_quantise_scalar.add_powers(sum + whole, codes + whole, n - whole, top);
}

/* ---- FP8 --------------------------------------------------------------------------------------------------------- */

/* All ones where a < b; neither has its highest bit set, so the comparison may take it for a sign. */
TW_INLINE word_vector below(word_vector a, uint32_t b)
{
    return (word_vector)((integer_vector)a < (integer_vector)((word_vector){0} + b));
}

TW_INLINE word_vector to_e4m3(vector x)
{
    word_vector bits = (word_vector)x, magnitude = bits & 0x7FFFFFFFu;
    magnitude = choose(below(magnitude, TW_E4M3_MOST_BITS), magnitude, (word_vector){0} + TW_E4M3_MOST_BITS);
    word_vector small = (word_vector)((vector)magnitude + 0x1p14f) - TW_E4M3_UNIT_BITS;
    word_vector normal = ((magnitude + 0x7FFFFu + (magnitude >> 20 & 1)) >> 20) - TW_E4M3_REBIAS;
    return choose(below(magnitude, TW_E4M3_NORMAL_BITS), small, normal) | bits >> 31 << 7;
}

/* Of codes of which only the lowest byte counts. */
TW_INLINE vector from_e4m3(word_vector code)
{
    word_vector rest = code & 127, sign = (code & 128) << 24;
    vector normal = (vector)((rest + TW_E4M3_REBIAS) << 20);
    vector small = (vector)((rest << 20) + TW_E4M3_NORMAL_BITS) - 0x1p-6f;
    return (vector)(sign | (word_vector)blend(below(rest, 8), small, normal));
}

/* Four rows fill a word a lane, here and below. */
static void send_e4m3(unsigned char *codes, const float *x, size_t n, float a, float inverse)
{
    size_t whole = n / GROUP * GROUP;
    for (size_t i = 0; i < whole; i += PACK_BYTES)
        for (size_t part = 0; part < PACK_PARTS; part++) {
            word_vector word = {0};
            for (size_t row = 0; row < 4; row++)
                word |= to_e4m3(a * load(x + i + row * TW_PACK_LANES + part * WIDTH) * inverse) << 8 * row;
            store_words(codes + i + 4 * part * WIDTH, word);
        }
    tw_quantise_scalar.send_e4m3(codes + whole, x + whole, n - whole, a, inverse);
}

static void add_e4m3(float *sum, const unsigned char *codes, size_t n, float unit)
{
    size_t whole = n / GROUP * GROUP;
    for (size_t i = 0; i < whole; i += PACK_BYTES)
        for (size_t part = 0; part < PACK_PARTS; part++) {
            word_vector word = load_words(codes + i + 4 * part * WIDTH);
            for (size_t row = 0; row < 4; row++, word >>= 8) {
                float *at = sum + i + row * TW_PACK_LANES + part * WIDTH;
                store(at, load(at) + from_e4m3(word) * unit);
            }
        }
    tw_quantise_scalar.add_e4m3(sum + whole, codes + whole, n - whole, unit);
}

/* ---- packing: a part of a group at a time, its words in a register ----------------------------------------------- */

TW_INLINE void pack_part(unsigned char *dst, const uint32_t *code, unsigned bits)
{
    word_vector pending = {0};
    unsigned held = 0;
    for (size_t row = 0; row < 32; row++) {
        word_vector next = load_words(code + row * TW_PACK_LANES);
        pending |= next << held;
        held += bits;
        if (held < 32) continue;
        store_words(dst, pending);
        dst += PACK_BYTES;
        held -= 32;
        pending = held ? next >> (bits - held) : (word_vector){0};
    }
}

TW_INLINE void unpack_part(uint32_t *code, const unsigned char *src, unsigned bits)
{
    word_vector pending = {0};
    unsigned held = 0;
    for (size_t row = 0; row < 32; row++) {
        word_vector now = pending;
        if (held < bits) {
            pending = load_words(src);
            src += PACK_BYTES;
            now |= pending << held;
            pending >>= bits - held;
            held += 32;
        } else {
            pending >>= bits;
        }
        held -= bits;
        store_words(code + row * TW_PACK_LANES, now & ((1u << bits) - 1));
    }
}

static void pack(unsigned char *dst, const uint32_t *code, size_t n, unsigned bits)
{
    size_t whole = n / GROUP * GROUP;
    for (size_t group = 0; group < whole; group += GROUP)
        for (size_t part = 0; part < PACK_PARTS; part++)
            pack_part(dst + group / 8 * bits + part * WIDTH * 4, code + group + part * WIDTH, bits);
    tw_quantise_scalar.pack(dst + whole / 8 * bits, code + whole, n - whole, bits);
}

static void unpack(uint32_t *code, const unsigned char *src, size_t n, unsigned bits)
{
    size_t whole = n / GROUP * GROUP;
    for (size_t group = 0; group < whole; group += GROUP)
        for (size_t part = 0; part < PACK_PARTS; part++)
            unpack_part(code + group + part * WIDTH, src + group / 8 * bits + part * WIDTH * 4, bits);
    tw_quantise_scalar.unpack(code + whole, src + whole / 8 * bits, n - whole, bits);
}

/* The bytes of five rows, one in each lane. */
TW_INLINE word_vector join_trits(const uint32_t *code)
{
    word_vector byte = {0};
    for (size_t row = 5; row-- > 0;) byte = byte * 3 + load_words(code + row * TW_PACK_LANES);
    return byte;
}

TW_INLINE void split_trits(word_vector byte, uint32_t *code)
{
    for (size_t row = 0; row < 5; row++) {
        word_vector third = byte * 171 >> 9; /* byte / 3, right up to 511 */
        store_words(code + row * TW_PACK_LANES, byte - third * 3);
        byte = third;
    }
}

static void pack_trits(unsigned char *dst, const uint32_t *code, size_t n)
{
    size_t whole = n / TW_TRIT_GROUP * TW_TRIT_GROUP;
    for (size_t group = 0; group < whole; group += TW_TRIT_GROUP)
        for (size_t part = 0; part < TW_PACK_LANES; part += WIDTH) {
            word_vector packed = {0};
            for (size_t byte = 0; byte < 4; byte++)
                packed |= join_trits(code + group + 5 * byte * TW_PACK_LANES + part) << 8 * byte;
            store_words(dst + group / 5 + 4 * part, packed);
        }
    tw_quantise_scalar.pack_trits(dst + whole / 5, code + whole, n - whole);
}

static void unpack_trits(uint32_t *code, const unsigned char *src, size_t n)
{
    size_t whole = n / TW_TRIT_GROUP * TW_TRIT_GROUP;
    for (size_t group = 0; group < whole; group += TW_TRIT_GROUP)
        for (size_t part = 0; part < TW_PACK_LANES; part += WIDTH) {
            word_vector packed = load_words(src + group / 5 + 4 * part);
            for (size_t byte = 0; byte < 4; byte++)
                split_trits(packed >> 8 * byte & 255, code + group + 5 * byte * TW_PACK_LANES + part);
        }
    tw_quantise_scalar.unpack_trits(code + whole, src + whole / 5, n - whole);
}

static const tw_quantise_rows quantise_rows = {TW_QUANTISE_LOOPS};
