/* support.h - what the tests of the kernels share: the questions, the data, and when two results count as the same. */
#ifndef TW_TESTS_KERNELS_SUPPORT_H
#define TW_TESTS_KERNELS_SUPPORT_H

#include "half.h"
#include "kernels.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <thinwire/thinwire_plugin.h>
#include <unistd.h>

#include "support/cmocka.h"

enum { FIRST = 1000003 }; /* the number of the first element, for the rows that list */

/* From one size to the next. An emulated processor takes many times as long, and may be told to pass over sizes: by a
 * number that shares no factor with those of alignments, problems and contents, so that all of these still occur. */
static inline size_t stride(void)
{
    static size_t stride;
    const char *wish = getenv("THINWIRE_TEST_STRIDE");
    if (!stride) stride = wish ? strtoul(wish, NULL, 10) : 1;
    return stride ? stride : 1;
}

/* What a row may be asked. */
typedef struct problem {
    size_t n;
    float a, m, threshold;
    int nesterov;
} problem;

static const problem problems[] = {
    {.a = 1 / 3.0f, .m = 0.9f, .threshold = 0.5f, .nesterov = 0},
    {.a = 1 / 3.0f, .m = 0.9f, .threshold = 0.0f, .nesterov = 1},
    {.a = -7.1f, .m = 0.0f, .threshold = FLT_MAX, .nesterov = 0},
    {.a = 0.0f, .m = 0.7f, .threshold = INFINITY, .nesterov = 1},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

/* Steps of Adam's direction: one looks ahead, as a problem may. */
static const tw_adam_step steps[] = {
    {.beta1 = 0.9F,
     .fresh = 0.1F,
     .beta2 = 0.999F,
     .fresh_square = 0.001F,
     .correction = 10,
     .correct_root = 30,
     .epsilon = 1e-8F},
    {.beta1 = 0.75F,
     .fresh = 0.25F,
     .beta2 = 0.9375F,
     .fresh_square = 0.0625F,
     .correction = 1,
     .correct_root = 2,
     .epsilon = 0x1p-20F,
     .nesterov = 1},
};
enum { STEPS = sizeof steps / sizeof *steps };

/* Steps that share m: one divides it before, one after. */
static const tw_shared_step shared_steps[] = {
    {.kept = 2.7F, .fresh = 0.1F, .most = 1.25F, .correction = 1.5F, .divides = 1},
    {.kept = 0.75F, .fresh = 0.25F, .most = FLT_MAX, .correction = 1.125F},
};
enum { SHARED_STEPS = sizeof shared_steps / sizeof *shared_steps };

typedef enum content { ORDINARY, SPECIAL, ANY_BITS, CONTENTS } content;

/* 0.5 is also a threshold: it must not pass. */
static const float specials[] = {0.0f,     -0.0f,   0x1p-149f, -0x1p-149f, 0x1.fffffcp-127f, FLT_MIN,  0.5f,      -0.5f,
                                 0x1p-25f, 65519.f, 65520.f,   FLT_MAX,    -FLT_MAX,         INFINITY, -INFINITY, NAN};

static inline uint32_t pattern(content kind, size_t i)
{
    uint32_t words[4];
    tw_random(7, (uint64_t)kind, i, words);
    if (kind == ANY_BITS) return words[0];
    if (kind == SPECIAL && words[1] % 3 == 0) return tw_float_bits(specials[words[2] % 16]);
    return tw_float_bits((float)((double)(int32_t)words[0] * 0x1p-31));
}

/* `count` elements of `size` bytes that end where memory ends: the first access past them is a fault. */
static inline void *before_the_edge(size_t count, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    assert_true(count * size <= page);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    return pages + page - count * size;
}

static inline int is_nan(uint32_t bits)
{
    return (bits & 0x7FFFFFFFu) > 0x7F800000u;
}

static inline int alike(uint32_t a, uint32_t b, int arithmetic)
{
    return a == b || (arithmetic && is_nan(a) && is_nan(b));
}

static inline void assert_same_number(double expected, double actual, const char *what)
{
    if (isnan(expected) && isnan(actual)) return;
    if (memcmp(&expected, &actual, sizeof expected) != 0) fail_msg("%s: %a, reference %a", what, actual, expected);
}

#endif
