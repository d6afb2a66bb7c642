#include "cosine.h"

#include "error.h"
#include "kernels.h"
#include "memory.h"

#include <math.h>
#include <string.h>

/* ---- the matrices ------------------------------------------------------------------------------------------------ */

/* Of 0 to pi/2, by its series: libm's differs between processors in its last bits. */
static double quarter_cosine(double x)
{
    enum { TERMS = 14 };
    double sum = 1, term = 1;
    for (int k = 1; k < TERMS; k++) {
        term *= -x * x / ((2 * k - 1) * (2 * k));
        sum += term;
    }
    return sum;
}

/* cos(pi m / 2n). */
static double cosine_of(size_t m, size_t n)
{
    const double HALF_PI = 1.57079632679489661923;
    m %= 4 * n;
    if (m > 2 * n) m = 4 * n - m;
    double part = (double)m / (double)n;
    return m <= n ? quarter_cosine(HALF_PI * part) : -quarter_cosine(HALF_PI * (2 - part));
}

tw_status tw_cosine_create(tw_cosine *cosine, size_t longest)
{
    cosine->longest = longest;
    TW_TRY(tw_allocate(longest + 1, sizeof *cosine->matrix, &cosine->matrix));
    TW_TRY(tw_allocate(longest * longest, sizeof *cosine->folded, &cosine->folded));
    return tw_allocate(longest * longest, sizeof *cosine->turned, &cosine->turned);
}

tw_status tw_cosine_know(tw_cosine *cosine, size_t length)
{
    if (cosine->matrix[length]) return TW_OK;
    TW_TRY(tw_allocate(length * length, sizeof **cosine->matrix, &cosine->matrix[length]));
    for (size_t k = 0; k < length; k++)
        for (size_t i = 0; i < length; i++)
            cosine->matrix[length][k * length + i] =
                (float)(sqrt((k ? 2.0 : 1.0) / (double)length) * cosine_of((2 * i + 1) * k, length));
    return TW_OK;
}

void tw_cosine_destroy(tw_cosine *cosine)
{
    for (size_t n = 0; cosine->matrix && n <= cosine->longest; n++) tw_free(cosine->matrix[n]);
    tw_free(cosine->matrix);
    tw_free(cosine->folded);
    tw_free(cosine->turned);
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* Of a matrix with `width` columns, every other row or each, and what is added up to make each of another's. */
typedef struct rows_of {
    float *at;
    size_t jump, count; /* from one to the next, in rows */
} rows_of;

/* Row r of `made` becomes the sum over j of weight[r * across + j * along] times row j of x. */
static void combine(rows_of made, rows_of x, size_t width, const float *weight, size_t across, size_t along)
{
    tw_kernels_best()->lowrank->add_combinations(&(tw_combinations){.dst = made.at,
                                                                    .dst_stride = made.jump * width,
                                                                    .rows = made.count,
                                                                    .x = x.at,
                                                                    .stride = x.jump * width,
                                                                    .count = x.count,
                                                                    .c = weight,
                                                                    .c_row = across,
                                                                    .c_step = along,
                                                                    .n = width,
                                                                    .from_zero = 1});
}

/* Rows of D are alike from both ends, the odd ones but for the sign. So half of the products will do: of the sums of
 * what stands at both ends, and of the differences. x becomes D x. */
static void forward_columns(const tw_cosine *cosine, float *x, size_t height, size_t width)
{
    const float *matrix = cosine->matrix[height];
    size_t half = height / 2, evens = height - half;
    float *sums = cosine->folded, *differences = sums + evens * width;
    for (size_t i = 0; i < half; i++)
        for (size_t c = 0; c < width; c++) {
            float top = x[i * width + c], bottom = x[(height - 1 - i) * width + c];
            sums[i * width + c] = top + bottom;
            differences[i * width + c] = top - bottom;
        }
    if (evens > half) memcpy(sums + half * width, x + half * width, width * sizeof *x);
    combine((rows_of){x, 2, evens}, (rows_of){sums, 1, evens}, width, matrix, 2 * height, 1);
    combine((rows_of){x + width, 2, half}, (rows_of){differences, 1, half}, width, matrix + height, 2 * height, 1);
}

/* c becomes D^T c. */
static void inverse_columns(const tw_cosine *cosine, float *c, size_t height, size_t width)
{
    const float *matrix = cosine->matrix[height];
    size_t half = height / 2, evens = height - half;
    float *even = cosine->folded, *odd = even + evens * width;
    combine((rows_of){even, 1, evens}, (rows_of){c, 2, evens}, width, matrix, 1, 2 * height);
    combine((rows_of){odd, 1, half}, (rows_of){c + width, 2, half}, width, matrix + height, 1, 2 * height);
    for (size_t i = 0; i < half; i++)
        for (size_t j = 0; j < width; j++) {
            float a = even[i * width + j], b = odd[i * width + j];
            c[i * width + j] = a + b;
            c[(height - 1 - i) * width + j] = a - b;
        }
    if (evens > half) memcpy(c + half * width, even + half * width, width * sizeof *c);
}

/* ---- both sides -------------------------------------------------------------------------------------------------- */

static void transpose(float *dst, const float *src, size_t height, size_t width)
{
    for (size_t i = 0; i < height; i++)
        for (size_t j = 0; j < width; j++) dst[j * height + i] = src[i * width + j];
}

typedef void (*columns_of)(const tw_cosine *cosine, float *x, size_t height, size_t width);

static void both_sides(const tw_cosine *cosine, float *x, size_t height, size_t width, columns_of transform)
{
    transform(cosine, x, height, width);
    if (width == 1) return;
    transpose(cosine->turned, x, height, width);
    transform(cosine, cosine->turned, width, height);
    transpose(x, cosine->turned, width, height);
}

void tw_cosine_forward(const tw_cosine *cosine, float *x, size_t height, size_t width)
{
    both_sides(cosine, x, height, width, forward_columns);
}

void tw_cosine_inverse(const tw_cosine *cosine, float *c, size_t height, size_t width)
{
    both_sides(cosine, c, height, width, inverse_columns);
}
