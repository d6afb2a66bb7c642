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
            largest[k] = higher((vector)(load_words(x + i + k * WIDTH) & 0x7FFFFFFFu), largest[k]);
    for (size_t k = 1; k < BLOCK / WIDTH; k++) largest[0] = higher(largest[k], largest[0]);
    float most = largest_lane(largest[0]), rest = tw_quantise_scalar.peak(x + whole, n - whole);
    return tw_float_bits(rest) > tw_float_bits(most) ? rest : most;
}

/* ---- what is added ----------------------------------------------------------------------------------------------- */

/* What the codes of a call say, for all rows: each knows which members it needs. */
typedef struct coded {
    const unsigned char *codes;
    vector a, b;
    tw_levels levels;
} coded;

/* The elements of a part of a group's row. */
typedef vector (*decode_part)(const coded *from, size_t group, size_t row, size_t part);

TW_INLINE void add_whole(const tw_addition *to, size_t whole, size_t size, decode_part decode, const coded *from,
                         int past)
{
    for (size_t group = 0; group < whole; group += size)
        for (size_t row = 0; row < size / TW_PACK_LANES; row++)
            for (size_t part = 0; part < PACK_PARTS; part++) {
                size_t i = group + row * TW_PACK_LANES + part * WIDTH;
                write_vector(to->dst + i, load(to->sum + i) + decode(from, group, row, part), past);
            }
}

/* Adds the whole groups of `size` elements, and returns what is left to do. */
TW_INLINE tw_addition add_groups(const tw_addition *to, size_t size, decode_part decode, const coded *from)
{
    size_t whole = to->n / size * size;
    if (to->past && (uintptr_t)to->dst % sizeof(vector) == 0)
        add_whole(to, whole, size, decode, from, 1);
    else
        add_whole(to, whole, size, decode, from, 0);
    return (tw_addition){to->dst + whole, to->sum + whole, to->n - whole, 0};
}

/* A lane's word `number` of a group. */
TW_INLINE word_vector word_of(const unsigned char *group, size_t number, size_t part)
{
    return load_words(group + number * PACK_BYTES + part * sizeof(word_vector));
}

/* A row's bytes; above them stands what comes next in the words. */
TW_INLINE word_vector bytes_of(const coded *from, size_t group, size_t row, size_t part)
{
    return word_of(from->codes + group, row / 4, part) >> (uint32_t)(8 * (row % 4));
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
        for (unsigned row = 0; row < 32; row++) {
            size_t i = group + (size_t)row * TW_PACK_LANES;
            fetch_early(v + i, TW_PACK_LANES);
            fetch_early(g + i, TW_PACK_LANES);
            for (size_t part = 0; part < PACK_PARTS; part++, i += WIDTH)
                send_row(&parts[part], v + i, g + i, a, wide_sent, row);
        }
        for (size_t part = 0; part < PACK_PARTS; part++) {
            store_words(bits + group / 8 + 4 * part * WIDTH, parts[part].packed);
            add_part(sums, &parts[part], part * WIDTH);
        }
    }
    tw_quantise_scalar.send_signs(v + whole, g + whole, n - whole, a, sent, bits + whole / 8, sums);
}

static void take_signs(float *v, size_t n, const float sent[2])
{
    size_t whole = n / WIDTH * WIDTH;
    const vector positive = broadcast(sent[0]), negative = broadcast(sent[1]);
    for (size_t i = 0; i < whole; i += WIDTH) {
        vector x = load(v + i);
        store(v + i, x - blend((word_vector)(x < 0.0f), negative, positive));
    }
    tw_quantise_scalar.take_signs(v + whole, n - whole, sent);
}

static size_t fill_still(float *v, const float *alive, size_t n, float value)
{
    size_t whole = n / WIDTH * WIDTH, count = 0;
    for (size_t i = 0; i < whole; i += WIDTH) {
        word_vector moves = (word_vector)(load(alive + i) > 0.0f);
        uint64_t still = above((vector)(~moves & 0x40000000u), 1); /* one that is still as 2, others as 0 */
        if (!still) continue;
        store(v + i, blend(moves, load(v + i), broadcast(value)));
        count += (size_t)__builtin_popcountll(still);
    }
    return count + tw_quantise_scalar.fill_still(v + whole, alive + whole, n - whole, value);
}

TW_INLINE vector decode_signs(const coded *from, size_t group, size_t row, size_t part)
{
    word_vector is_negative = -(word_of(from->codes + group / 8, 0, part) >> (uint32_t)row & 1u);
    return blend(is_negative, from->b, from->a);
}

static void add_signs(const tw_addition *to, const unsigned char *bits, const float value[2])
{
    const coded from = {.codes = bits, .a = broadcast(value[0]), .b = broadcast(value[1])};
    tw_addition rest = add_groups(to, GROUP, decode_signs, &from);
    tw_quantise_scalar.add_signs(&rest, bits + (to->n - rest.n) / 8, value);
}

/* ---- levels and powers ------------------------------------------------------------------------------------------- */

/* How a*x becomes a code; `most` is for levels alone. */
typedef struct rounding {
    float a, factor;
    uint32_t most;
} rounding;

typedef word_vector (*round_vector)(vector scaled, uint32_t most, word_vector random);

TW_INLINE word_vector swap_halves(word_vector random)
{
    return random << 16 | random >> 16;
}

/* Rounds those elements of two rows whose lanes begin at x; the first has that number. */
TW_INLINE void round_pair(word_vector code[2], const float *x, rounding how, const tw_noise *noise, word_vector number,
                          round_vector round)
{
    word_vector random = hash(noise, number);
    code[0] = round(how.a * load(x) * how.factor, how.most, random);
    code[1] = round(how.a * load(x + TW_PACK_LANES) * how.factor, how.most, swap_halves(random));
}

/* Numbers have 24 bits behind the point. */
TW_INLINE word_vector round_level(vector level, uint32_t most, word_vector random)
{
    return ((word_vector) __builtin_convertvector(level, integer_vector) + (most << 24) + (random >> 8)) >> 24;
}

/* The words of some lanes under way. */
typedef struct packer {
    unsigned char *dst;
    word_vector pending;
    unsigned bits, held;
} packer;

TW_INLINE void pack(packer *p, word_vector code)
{
    p->pending |= code << p->held;
    p->held += p->bits;
    if (p->held < 32) return;
    store_words(p->dst, p->pending);
    p->dst += PACK_BYTES;
    p->held -= 32;
    p->pending = p->held ? code >> (p->bits - p->held) : (word_vector){0};
}

TW_INLINE uint32_t most_of(const tw_levels *levels)
{
    return (1u << (levels->bits - 1)) - 1;
}

TW_INLINE float factor_of(const tw_levels *levels, size_t i)
{
    return levels->factor[i >> __builtin_ctzll(levels->bucket)];
}

/* Elements from `group` on of all, those of some lanes. */
TW_INLINE void send_level_lanes(unsigned char *codes, const float *x, size_t group, size_t part, float a,
                                const tw_levels *levels, const tw_noise *noise)
{
    packer packed = {codes + group / 8 * levels->bits + part * sizeof(word_vector), {0}, levels->bits, 0};
    word_vector number = lane_numbers() + (noise->first + (uint32_t)(group + part * WIDTH)), code[2];
    for (size_t i = group; i < group + GROUP; i += TW_NOISE_ROW, number += TW_NOISE_ROW) {
        rounding how = {a, factor_of(levels, i) * 0x1p24f, most_of(levels)};
        if (part == 0) fetch_early(x + i, TW_NOISE_ROW);
        round_pair(code, x + i + part * WIDTH, how, noise, number, round_level);
        pack(&packed, code[0]);
        pack(&packed, code[1]);
    }
}

/* The same where whole rows fill a word: each code's place in it is known when this is compiled. */
TW_INLINE void send_even_lanes(unsigned char *codes, const float *x, size_t group, size_t part, float a,
                               const tw_levels *levels, const tw_noise *noise, unsigned bits)
{
    unsigned char *dst = codes + group / 8 * bits + part * sizeof(word_vector);
    word_vector number = lane_numbers() + (noise->first + (uint32_t)(group + part * WIDTH)), code[2];
    const uint32_t most = (1u << (bits - 1)) - 1;
    size_t i = group;
    for (unsigned word = 0; word < bits; word++, dst += PACK_BYTES) {
        word_vector packed = {0};
#pragma GCC unroll 16
        for (unsigned at = 0; at < 32; at += 2 * bits, i += TW_NOISE_ROW, number += TW_NOISE_ROW) {
            rounding how = {a, factor_of(levels, i) * 0x1p24f, most};
            if (part == 0) fetch_early(x + i, TW_NOISE_ROW);
            round_pair(code, x + i + part * WIDTH, how, noise, number, round_level);
            packed |= code[0] << at | code[1] << (at + bits);
        }
        store_words(dst, packed);
    }
}

TW_INLINE void send_level_group(unsigned char *codes, const float *x, size_t group, float a, const tw_levels *levels,
                                const tw_noise *noise)
{
    for (size_t part = 0; part < PACK_PARTS; part++)
        if (levels->bits == 4)
            send_even_lanes(codes, x, group, part, a, levels, noise, 4);
        else if (levels->bits == 8)
            send_even_lanes(codes, x, group, part, a, levels, noise, 8);
        else
            send_level_lanes(codes, x, group, part, a, levels, noise);
}

static void send_levels(unsigned char *codes, const float *x, size_t n, float a, const tw_levels *levels,
                        tw_noise noise)
{
    size_t whole = n / GROUP * GROUP;
    for (size_t group = 0; group < whole; group += GROUP) send_level_group(codes, x, group, a, levels, &noise);
    tw_levels rest = {levels->bits, levels->bucket, levels->factor + whole / levels->bucket};
    noise.first += (uint32_t)whole;
    tw_quantise_scalar.send_levels(codes + whole / 8 * levels->bits, x + whole, n - whole, a, &rest, noise);
}

/* A code lies in one word, or its upper bits are the next one's lowest. */
TW_INLINE vector decode_levels(const coded *from, size_t group, size_t row, size_t part)
{
    const tw_levels *levels = &from->levels;
    const unsigned char *codes = from->codes + group / 8 * levels->bits;
    unsigned first = (unsigned)row * levels->bits, word = first / 32, shift = first % 32;
    word_vector code = word_of(codes, word, part) >> shift;
    if (shift + levels->bits > 32) code |= word_of(codes, word + 1, part) << (32 - shift);
    code = (code & ((1u << levels->bits) - 1)) - most_of(levels);
    return __builtin_convertvector((integer_vector)code, vector) * factor_of(levels, group + row * TW_PACK_LANES);
}

static void add_levels(const tw_addition *to, const unsigned char *codes, const tw_levels *levels)
{
    const coded from = {.codes = codes, .levels = *levels};
    tw_addition left = add_groups(to, GROUP, decode_levels, &from);
    size_t whole = to->n - left.n;
    tw_levels rest = {levels->bits, levels->bucket, levels->factor + whole / levels->bucket};
    tw_quantise_scalar.add_levels(&left, codes + whole / 8 * levels->bits, &rest);
}

/* Of at most 1 in size: the addition carries neither into the sign nor into the bit below it, and what follows moves
 * the sign there. */
TW_INLINE word_vector round_power(vector scaled, uint32_t most, word_vector random)
{
    (void)most;
    const word_vector power = (word_vector){0} + 127;
    word_vector sum = (word_vector)scaled + (random >> 9);
    return choose(power, sum >> 23, sum >> 24);
}

/* The words of four rows: those of the lanes at x, of which the first has that number, and those below. */
TW_INLINE word_vector round_word(const float *x, rounding how, const tw_noise *noise, word_vector number)
{
    word_vector word = {0}, code[2];
    for (size_t row = 0; row < 4; row += 2) {
        size_t first = row * TW_PACK_LANES;
        round_pair(code, x + first, how, noise, number + (uint32_t)first, round_power);
        word |= code[0] << 8 * row | code[1] << 8 * (row + 1);
    }
    return word;
}

static void send_powers(unsigned char *codes, const float *x, size_t n, float a, float inverse, tw_noise noise)
{
    const rounding how = {.a = a, .factor = inverse};
    size_t whole = n / GROUP * GROUP;
    word_vector number = lane_numbers() + noise.first;
    for (size_t i = 0; i < whole; i += PACK_BYTES) { /* four rows fill a word a lane */
        fetch_early(x + i, PACK_BYTES);
        for (size_t part = 0; part < PACK_PARTS; part++, number += WIDTH)
            store_words(codes + i + 4 * part * WIDTH, round_word(x + i + part * WIDTH, how, &noise, number));
        number += PACK_BYTES - TW_PACK_LANES;
    }
    noise.first += (uint32_t)whole;
    tw_quantise_scalar.send_powers(codes + whole, x + whole, n - whole, a, inverse, noise);
}

TW_INLINE vector decode_powers(const coded *from, size_t group, size_t row, size_t part)
{
    word_vector code = bytes_of(from, group, row, part);
    return (vector)((code & 127) << 23 | (code & 128) << 24) * from->a;
}

static void add_powers(const tw_addition *to, const unsigned char *codes, float top)
{
    const coded from = {.codes = codes, .a = broadcast(top)};
    tw_addition rest = add_groups(to, GROUP, decode_powers, &from);
    tw_quantise_scalar.add_powers(&rest, codes + (to->n - rest.n), top);
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

/* Four rows fill a word a lane. */
static void send_e4m3(unsigned char *codes, const float *x, size_t n, float a, float inverse)
{
    size_t whole = n / GROUP * GROUP;
    for (size_t i = 0; i < whole; i += PACK_BYTES) {
        fetch_early(x + i, PACK_BYTES);
        for (size_t part = 0; part < PACK_PARTS; part++) {
            word_vector word = {0};
            for (size_t row = 0; row < 4; row++)
                word |= to_e4m3(a * load(x + i + row * TW_PACK_LANES + part * WIDTH) * inverse) << 8 * row;
            store_words(codes + i + 4 * part * WIDTH, word);
        }
    }
    tw_quantise_scalar.send_e4m3(codes + whole, x + whole, n - whole, a, inverse);
}

TW_INLINE vector decode_e4m3(const coded *from, size_t group, size_t row, size_t part)
{
    return from_e4m3(bytes_of(from, group, row, part)) * from->a;
}

static void add_e4m3(const tw_addition *to, const unsigned char *codes, float unit)
{
    const coded from = {.codes = codes, .a = broadcast(unit)};
    tw_addition rest = add_groups(to, GROUP, decode_e4m3, &from);
    tw_quantise_scalar.add_e4m3(&rest, codes + (to->n - rest.n), unit);
}

/* ---- trits ------------------------------------------------------------------------------------------------------- */

enum { TRIT_ROWS = TW_TRIT_GROUP / TW_PACK_LANES };

TW_INLINE word_vector round_trit(vector level, uint32_t most, word_vector random)
{
    const vector high = broadcast(0x1p24f), low = -high;
    return round_level((vector)larger((vector)smaller(level, high), low), most, random);
}

/* Five rows of some lanes to a byte, the last times 81. */
TW_INLINE word_vector join_trits(const word_vector trit[TRIT_ROWS])
{
    word_vector word = {0};
    for (size_t byte = 0; byte < 4; byte++) {
        word_vector five = {0};
        for (size_t row = 5; row-- > 0;) five = five * 3 + trit[5 * byte + row];
        word |= five << (uint32_t)(8 * byte);
    }
    return word;
}

/* Elements from `group` on of all, those of some lanes. */
TW_INLINE void send_trit_lanes(unsigned char *bytes, const float *x, size_t group, size_t part, rounding how,
                               const tw_noise *noise)
{
    word_vector number = lane_numbers() + (noise->first + (uint32_t)(group + part * WIDTH)), trit[TRIT_ROWS];
    for (size_t row = 0; row < TRIT_ROWS; row += 2, number += TW_NOISE_ROW) {
        const float *at = x + group + row * TW_PACK_LANES;
        if (part == 0) fetch_early(at, TW_NOISE_ROW);
        round_pair(trit + row, at + part * WIDTH, how, noise, number, round_trit);
    }
    store_words(bytes + group / 5 + part * sizeof(word_vector), join_trits(trit));
}

static void send_trits(unsigned char *bytes, const float *x, size_t n, float a, float inverse, tw_noise noise)
{
    const rounding how = {a, inverse * 0x1p24f, 1};
    size_t whole = n / TW_TRIT_GROUP * TW_TRIT_GROUP;
    for (size_t group = 0; group < whole; group += TW_TRIT_GROUP)
        for (size_t part = 0; part < PACK_PARTS; part++) send_trit_lanes(bytes, x, group, part, how, &noise);
    noise.first += (uint32_t)whole;
    tw_quantise_scalar.send_trits(bytes + whole / 5, x + whole, n - whole, a, inverse, noise);
}

/* For a byte, byte * thirds[k] >> 16 is byte / 3^k. */
TW_INLINE vector decode_trits(const coded *from, size_t group, size_t row, size_t part)
{
    static const uint32_t thirds[] = {65536, 21846, 7282, 2428, 810};
    word_vector byte = word_of(from->codes + group / 5, 0, part) >> (uint32_t)(8 * (row / 5)) & 255;
    word_vector whole = byte * thirds[row % 5] >> 16, trit = whole - (whole * thirds[1] >> 16) * 3;
    return __builtin_convertvector((integer_vector)trit - 1, vector) * from->a;
}

static void add_trits(const tw_addition *to, const unsigned char *bytes, float unit)
{
    const coded from = {.codes = bytes, .a = broadcast(unit)};
    tw_addition rest = add_groups(to, TW_TRIT_GROUP, decode_trits, &from);
    tw_quantise_scalar.add_trits(&rest, bytes + (to->n - rest.n) / 5, unit);
}

static const tw_quantise_rows quantise_rows = {TW_QUANTISE_LOOPS};
