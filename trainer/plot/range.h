/* range.h - the values along an axis: from where to where, and where it is marked. */
#ifndef TRAINER_RANGE_H
#define TRAINER_RANGE_H

#include <stdbool.h>
#include <stddef.h>

enum { RANGE_MARKS = 8, RANGE_TEXT = 32 };

typedef struct range {
    double low, high;
    bool logarithmic;
} range;

/* Differences and quotients of such are numbers, too. */
bool range_can_show(double value, bool logarithmic);

void range_widen(range *axis, double value);

/* Some room at both ends, or at the upper one where it begins at 0. */
void range_pad(range *axis, bool from_zero);

double range_share(const range *axis, double value);

/* Round numbers: one at least, and no more than `most`, which is 3 or more, or one more; RANGE_MARKS at the most. */
size_t range_marks(const range *axis, size_t most, double marks[RANGE_MARKS]);

/* 100k, where %g would be 1e+05. */
void range_text(const range *axis, double value, char text[RANGE_TEXT]);

#endif
