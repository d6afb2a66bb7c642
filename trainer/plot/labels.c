#include "plot.h"

#include <math.h>
#include <stdlib.h>

static int by_height(const void *a, const void *b)
{
    const double *const *left = a, *const *right = b;
    int order = (**left > **right) - (**left < **right);
    return order ? order : (*left > *right) - (*left < *right);
}

/* From the lowest up: each clears the one below it. */
static void lift(double **labels, size_t count, double height)
{
    for (size_t i = 0; i < count; i++) *labels[i] = fmax(*labels[i], i ? *labels[i - 1] + height : height / 2);
}

/* And back from the highest down, where some stood out at the top. */
static void lower(double **labels, size_t count, double height)
{
    double most = 1 - height / 2;
    for (size_t i = count; i-- > 0;) {
        *labels[i] = fmin(*labels[i], most);
        most = *labels[i] - height;
    }
}

void plot_part_labels(double *labels, size_t count, double height)
{
    double **sorted = malloc((count + 1) * sizeof *sorted);
    if (!sorted) return; /* they cover each other, and no more is lost */
    for (size_t i = 0; i < count; i++) sorted[i] = &labels[i];
    qsort(sorted, count, sizeof *sorted, by_height);
    lift(sorted, count, height);
    lower(sorted, count, height);
    free(sorted);
}
