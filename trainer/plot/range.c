#include "range.h"

#include <math.h>
#include <stdio.h>

bool range_can_show(double value, bool logarithmic)
{
    return fabs(value) <= 1e99 && (!logarithmic || value >= 1e-99);
}

void range_widen(range *axis, double value)
{
    axis->low = fmin(axis->low, value);
    axis->high = fmax(axis->high, value);
}

void range_pad(range *axis, bool from_zero)
{
    if (axis->logarithmic) {
        double factor = pow(axis->high / axis->low, 0.05);
        axis->low /= factor > 1 ? factor : 2;
        axis->high *= factor > 1 ? factor : 2;
        return;
    }
    if (from_zero) axis->low = fmin(axis->low, 0);
    double room = axis->high > axis->low ? 0.05 * (axis->high - axis->low) : fmax(fabs(axis->high), 1);
    if (!from_zero || axis->low < 0) axis->low -= room;
    axis->high += room;
}

double range_share(const range *axis, double value)
{
    if (axis->logarithmic) return log(value / axis->low) / log(axis->high / axis->low);
    return (value - axis->low) / (axis->high - axis->low);
}

/* 1, and where there is room 2 and 5, of every so manieth power of ten in the range; where none is, its middle. */
static size_t logarithmic_marks(const range *axis, size_t most, double marks[RANGE_MARKS])
{
    static const int digits[] = {1, 2, 5};
    double decades = log10(axis->high / axis->low);
    int step = decades > (double)most ? (int)ceil(decades / (double)most) : 1;
    size_t count = 0, digits_used = decades < 1.5 ? 3 : 1;
    for (int power = (int)floor(log10(axis->low)); pow(10, power) <= axis->high; power += step)
        for (size_t d = 0; d < digits_used && count < RANGE_MARKS; d++) {
            marks[count] = digits[d] * pow(10, power);
            count += marks[count] >= axis->low && marks[count] <= axis->high;
        }
    if (count == 0) marks[count++] = sqrt(axis->low * axis->high);
    return count;
}

/* 1, 2 or 5 times a power of ten, which goes `most` times into the span. */
static double step_between_marks(double span, size_t most)
{
    double power = pow(10, floor(log10(span / (double)most)));
    for (int digit = 1; digit < 10; digit += digit == 2 ? 3 : digit)
        if (span <= digit * power * (double)most) return digit * power;
    return 10 * power;
}

size_t range_marks(const range *axis, size_t most, double marks[RANGE_MARKS])
{
    if (most >= RANGE_MARKS) most = RANGE_MARKS - 1;
    if (axis->logarithmic) return logarithmic_marks(axis, most, marks);
    double step = step_between_marks(axis->high - axis->low, most), first = ceil(axis->low / step);
    size_t count = 0;
    for (size_t i = 0; i <= most; i++) {
        marks[count] = (first + (double)i) * step;
        count += marks[count] <= axis->high;
    }
    return count;
}

void range_text(const range *axis, double value, char text[RANGE_TEXT])
{
    static const char thousands[] = "kMGTPE";
    size_t power = 0;
    if (fmax(axis->high, -axis->low) >= 1e5)
        for (; fabs(value) >= 1000 && power < sizeof thousands - 1; power++) value /= 1000;
    snprintf(text, RANGE_TEXT, "%g%.*s", value, power > 0, power > 0 ? &thousands[power - 1] : "");
}
