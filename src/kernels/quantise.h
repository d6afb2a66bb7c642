/* quantise.h - every element in a few bits (sign, 1-bit, QSGD, TernGrad, natural compression, FP8). A part of the table
 * in kernels.h; its rules hold.
 *
 * Packed codes. A group of elements is laid out so that no vector, however wide, needs to move anything across its
 * lanes: element i of the group goes to lane i mod 32, and each lane fills 32-bit words of its own from the lowest bit,
 * in ascending order of i; word w of lane l is little-endian at byte 4 * (32 w + l). A group of 1,024 fills as many
 * words a lane as a code has bits. Trits (0, 1, 2) go five to a byte, the first times 1, the next times 3, up to 81,
 * twenty to a word, hence groups of 640. The elements behind the last whole group follow one another: bits from the
 * lowest of the first byte, or trits five to a byte. So n elements take ceil(n * bits / 8) or ceil(n / 5) bytes, and
 * what the last byte does not need is zero.
 *
 * Random bits are a hash of the element's number under a key: any level, any block and any thread finds the same. Two
 * elements, 32 apart in a row of 64, share the hash of the first; the second takes it with its halves exchanged: each
 * sees 32 uniform bits, and the one's highest 16, which all but decide, are the other's lowest. */
#ifndef TW_KERNELS_QUANTISE_H
#define TW_KERNELS_QUANTISE_H

#include <stddef.h>
#include <stdint.h>

enum { TW_PACK_LANES = 32, TW_PACK_GROUP = 1024, TW_TRIT_GROUP = 640, TW_NOISE_ROW = 2 * TW_PACK_LANES };

/* What a rounding at random needs to know of its elements. */
typedef struct tw_noise {
    uint32_t key[2];
    uint32_t first; /* the number of element 0, a multiple of TW_NOISE_ROW */
} tw_noise;

/* Of the elements that are not negative, and of those that are: partial sums over i mod 16, in double. A whole group's
 * are first added up lane by lane in single precision, row after row, and then lane after lane: half the work, and
 * feedback makes good whatever a mean is off by. */
typedef struct tw_sign_sums {
    double positive[16], negative[16];
    size_t negatives;
} tw_sign_sums;

/* What a row adds its elements to: dst = sum + element, n times. The two may be one. */
typedef struct tw_addition {
    float *dst;
    const float *sum;
    size_t n;
    int past; /* dst is for later: it is written past the cache, where the level can and its vectors fit the addresses.
                 Who is done with that calls drain (kernels.h) */
} tw_addition;

/* The levels of whole numbers from -most to most, most = 2^(bits-1) - 1: a code of `bits` bits, 2 to 8, is the number +
 * most. Each bucket of elements, a power of two from TW_LEAST_BUCKET to TW_PACK_GROUP, has a factor of its own. */
enum { TW_LEAST_BUCKET = 128 };
typedef struct tw_levels {
    unsigned bits;
    size_t bucket;
    const float *factor;
} tw_levels;

typedef struct tw_quantise_rows {
    /* v += a*g */
    void (*accumulate)(float *v, const float *g, size_t n, float a);
    /* The largest |x|, NaN above infinity; 0 if there is none. */
    float (*peak)(const float *x, size_t n);

    /* v = (v - (v < 0 ? sent[1] : sent[0])) + a*g; then packs a bit an element, 1 where v < 0, and adds v to *sums. */
    void (*send_signs)(float *v, const float *g, size_t n, float a, const float sent[2], unsigned char *bits,
                       tw_sign_sums *sums);
    /* v -= v < 0 ? sent[1] : sent[0] */
    void (*take_signs)(float *v, size_t n, const float sent[2]);
    /* Sets v to `value` where `alive` is not above 0. Returns how often. */
    size_t (*fill_still)(float *v, const float *alive, size_t n, float value);
    /* Adds bit ? value[1] : value[0]. */
    void (*add_signs)(const tw_addition *to, const unsigned char *bits, const float value[2]);

    /* Rounds a*x times its bucket's factor, which is within the levels, down or up to one at random, so that it is the
     * mean of what it becomes (to 2^-24). A factor is at most 2^100. */
    void (*send_levels)(unsigned char *codes, const float *x, size_t n, float a, const tw_levels *levels,
                        tw_noise noise);
    /* Adds the number times its bucket's factor. */
    void (*add_levels)(const tw_addition *to, const unsigned char *codes, const tw_levels *levels);

    /* Rounds a*x * inverse like that to -1, 0 or 1, with what is beyond cut to it; a trit is the number + 1. */
    void (*send_trits)(unsigned char *bytes, const float *x, size_t n, float a, float inverse, tw_noise noise);
    /* Adds the number * unit. Bytes are up to 242. */
    void (*add_trits)(const tw_addition *to, const unsigned char *bytes, float unit);

    /* Rounds |a*x| * inverse, at most 1, to one of the two powers of two around it, or below 2^-126 to 0 or 2^-126, so
     * that it is the mean of what it becomes. A code, of 8 bits, is p for 2^(p-127), 0 for 0, and 128 more if x is
     * negative. */
    void (*send_powers)(unsigned char *codes, const float *x, size_t n, float a, float inverse, tw_noise noise);
    /* Adds the power * top. */
    void (*add_powers)(const tw_addition *to, const unsigned char *codes, float top);

    /* The same, of a*x * inverse, rounded to nearest; a code is one of fp8.h. */
    void (*send_e4m3)(unsigned char *codes, const float *x, size_t n, float a, float inverse);
    /* Adds the number * unit. */
    void (*add_e4m3)(const tw_addition *to, const unsigned char *codes, float unit);
} tw_quantise_rows;
/* As TW_KERNEL_LOOPS. */
#define TW_QUANTISE_LOOPS                                                                                              \
    .accumulate = accumulate, .peak = peak, .send_signs = send_signs, .take_signs = take_signs,                        \
    .fill_still = fill_still, .add_signs = add_signs, .send_levels = send_levels, .add_levels = add_levels,            \
    .send_trits = send_trits, .add_trits = add_trits, .send_powers = send_powers, .add_powers = add_powers,            \
    .send_e4m3 = send_e4m3, .add_e4m3 = add_e4m3

/* The reference. */
extern const tw_quantise_rows tw_quantise_scalar;

#endif
