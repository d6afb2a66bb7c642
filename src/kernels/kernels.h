/* kernels.h - the loops that touch every element, as one table a level of instruction set.
 *
 * scalar.c is the reference. Every level has every row and gives the same bits: products and sums are rounded one by
 * one (no fused multiply-add), partial sums have a fixed shape. Any n, any alignment; arrays do not overlap unless they
 * are the same argument. */
#ifndef TW_KERNELS_H
#define TW_KERNELS_H

#include "averaging.h"
#include "chunks.h"
#include "cpu.h"
#include "descent.h"
#include "directions.h"
#include "halves.h"
#include "lowrank.h"
#include "moments.h"
#include "quantise.h"
#include "rounded.h"

#include <stddef.h>
#include <stdint.h>

/* Rows that take a gradient in look at it first, by groups of so many elements, of which the last may be shorter. */
enum { TW_GROUP = 64 };
/* Elements from which on an array is written past the cache: what a cache would hold is written into it. */
enum { TW_PAST_CACHE = 1 << 18 };
/* From here on an element is loud. Quiet ones have a norm that is no matter, however many they are. */
#define TW_LOUD 1e24F

typedef struct tw_kernels {
    /* 1 if no element is NaN or infinite. */
    int (*all_finite)(const float *x, size_t n);
    /* 1 if every |x| is below `limit`, which is positive; NaN is not below it. */
    int (*all_below)(const float *x, size_t n, float limit);
    /* Sum of squares in double: sixteen partial sums over i mod 16, then folded by halves (8, 4, 2, 1). */
    double (*sum_squares)(const float *x, size_t n);
    /* Adds the squares of x to such partial sums, x[0]'s to the first: of an array, part by part, each but the last a
     * multiple of 16 long. */
    void (*add_squares)(double partial[16], const float *x, size_t n);
    /* dst += src */
    void (*add)(float *dst, const float *src, size_t n);
    /* x *= a */
    void (*scale)(float *x, float a, size_t n);
    /* x /= a */
    void (*divide)(float *x, float a, size_t n);
    /* A step along the velocity: v = m*v + g; g = v, or with nesterov m*v + g. */
    void (*velocity)(float *v, float *g, size_t n, float m, int nesterov);

    /* The three below also list what stands out: for every i in ascending order with |v[i]| > threshold (the new v),
     * index gets first + i and value gets v[i]. index and value have room for n. Returns how many. Where they read a
     * gradient they leave zeros in it: the sums of what is sent are added up there. Unless `done` is NULL they stop
     * before a group with a loud element, or NaN, and *done gets the number of elements before it; n if there is none.
     */
    /* Momentum correction (Lin et al. 2018, section 3.2 and appendix B): u = m*u + a*g, then v += u, or with
     * nesterov v += m*u + a*g. */
    size_t (*momentum_select)(float *u, float *v, float *g, size_t n, float a, float m, int nesterov, float threshold,
                              uint32_t first, uint32_t *index, float *value, size_t *done);
    /* v += a*g */
    size_t (*accumulate_select)(float *v, float *g, size_t n, float a, float threshold, uint32_t first, uint32_t *index,
                                float *value, size_t *done);
    /* v as it is */
    size_t (*select)(const float *v, size_t n, float threshold, uint32_t first, uint32_t *index, float *value);

    /* Conversions as in half.h. */
    void (*to_fp16)(uint16_t *dst, const float *src, size_t n);
    void (*from_fp16)(float *dst, const uint16_t *src, size_t n);
    void (*to_bf16)(uint16_t *dst, const float *src, size_t n);
    void (*from_bf16)(float *dst, const uint16_t *src, size_t n);

    /* Ends a series of writes past the cache (TW_PAST_CACHE), before other threads may be told of them. */
    void (*drain)(void);

    /* Families of rows, each in a header of its own. */
    const tw_averaging_rows *averaging;
    const tw_moments_rows *moments;
    const tw_chunks_rows *chunks;
    const tw_descent_rows *descent;
    const tw_directions_rows *directions;
    const tw_quantise_rows *quantise;
    const tw_lowrank_rows *lowrank;
    const tw_rounded_rows *rounded;
    const tw_half_rows *fp16, *bf16;
} tw_kernels;
/* The rows of a level whose file has a function for each, by its name. */
#define TW_KERNEL_LOOPS                                                                                                \
    .all_finite = all_finite, .all_below = all_below, .sum_squares = sum_squares, .add_squares = add_squares,          \
    .add = add, .scale = scale, .divide = divide, .velocity = velocity, .momentum_select = momentum_select,            \
    .accumulate_select = accumulate_select, .select = select_only, .to_fp16 = to_fp16, .from_fp16 = from_fp16,         \
    .to_bf16 = to_bf16, .from_bf16 = from_bf16, .drain = drain

/* Ends a sum in double: folds its sixteen partial sums, over i mod 16, by halves (8, 4, 2, 1), in place. */
double tw_kernels_fold(double partial[16]);

/* The table of the level tw_isa_best() names. Never NULL. */
const tw_kernels *tw_kernels_best(void);
/* The table of a level; NULL when this processor or build lacks it. For tests and benchmarks. */
const tw_kernels *tw_kernels_at(tw_isa_level level);

#endif
