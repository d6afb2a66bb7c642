/* median.h - the middle one of measured times. */
#ifndef TRAINER_MEDIAN_H
#define TRAINER_MEDIAN_H

#include <stdlib.h>

static inline int median_order(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Of `count` values, one at least, which are sorted by this. */
static inline double median_of(double *values, size_t count)
{
    qsort(values, count, sizeof *values, median_order);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

#endif
