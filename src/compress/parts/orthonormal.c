#include "orthonormal.h"

#include <math.h>

/* What is left of a vector is no more than this part of it: rounding, and of no direction. */
#define NOTHING_LEFT 0x1p-20

enum { LANES = 8 };

static double fold(double sums[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) sums[k] += sums[k + half];
    return sums[0];
}

static double squared_norm(const double *x, size_t n)
{
    double sums[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) sums[k] += x[i + k] * x[i + k];
    for (int k = 0; i < n; i++, k++) sums[k] += x[i] * x[i];
    return fold(sums);
}

static double inner_product(const double *x, const float *y, size_t n)
{
    double sums[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) sums[k] += x[i + k] * y[i + k];
    for (int k = 0; i < n; i++, k++) sums[k] += x[i] * y[i];
    return fold(sums);
}

/* Takes out of x what it has in common with each of `count` unit vectors. */
static void project_out(double *x, const float *units, size_t count, size_t n)
{
    for (size_t k = 0; k < count; k++) {
        const float *unit = units + k * n;
        double common = inner_product(x, unit, n);
        for (size_t i = 0; i < n; i++) x[i] -= common * unit[i];
    }
}

/* Makes a vector a unit vector at right angles to the `before` that precede it, or zero; 1 if it vanished. */
static int orthonormalise_one(float *vector, const float *units, size_t before, size_t n, double *x)
{
    for (size_t i = 0; i < n; i++) x[i] = vector[i];
    double length = sqrt(squared_norm(x, n));
    project_out(x, units, before, n);
    project_out(x, units, before, n);
    double left = sqrt(squared_norm(x, n));
    int vanished = !(left > NOTHING_LEFT * length);
    for (size_t i = 0; i < n; i++) vector[i] = vanished ? 0 : (float)(x[i] / left);
    return vanished;
}

size_t tw_orthonormalise(float *vectors, size_t count, size_t length, double *scratch)
{
    size_t vanished = 0;
    for (size_t k = 0; k < count; k++)
        vanished += (size_t)orthonormalise_one(vectors + k * length, vectors, k, length, scratch);
    return vanished;
}
