/* rotary.c - sines and cosines in a table, which each row of a step shares. */
#include "rotary.h"

#include "wide.h"

/* Of a position to the next. */
static double angle_of(const nn_rotary *r, size_t i)
{
    const double two_pi = 6.283185307179586, plain = pow(r->base, -2.0 * (double)i / (double)r->width);
    const nn_rotary_scaling *s = &r->scaling;
    if (s->factor == 0.0) return plain;
    const double turns = s->original * plain / two_pi;
    const double kept = fmin(fmax((turns - s->low) / (s->high - s->low), 0.0), 1.0);
    return kept * plain + (1.0 - kept) * plain / s->factor;
}

tw_status nn_rotary_prepare(nn_rotary *r, size_t positions)
{
    const size_t half = r->width / 2;
    if (positions <= r->positions) return TW_OK;
    r->positions = 0;
    TW_TRY(nn_buffer_reserve(&r->waves, positions * r->width));
    for (size_t p = 0; p < positions; p++)
        for (size_t i = 0; i < half; i++) {
            const double angle = (double)p * angle_of(r, i);
            r->waves.values[p * r->width + i] = (float)cos(angle);
            r->waves.values[p * r->width + half + i] = (float)sin(angle);
        }
    r->positions = positions;
    return TW_OK;
}

void nn_rotary_free(nn_rotary *r)
{
    nn_buffer_free(&r->waves);
    r->positions = 0;
}

NN_WIDE static void turn(const float *waves, size_t half, float sign, size_t heads, float *row)
{
    for (size_t h = 0; h < heads; h++, row += 2 * half)
        for (size_t i = 0; i < half; i++) {
            const float a = row[i], b = row[half + i], c = waves[i], s = sign * waves[half + i];
            row[i] = a * c - b * s;
            row[half + i] = b * c + a * s;
        }
}

static void turn_all(const nn_rotary *r, const nn_turned *what, float sign, float *rows)
{
    for (size_t t = 0; t < what->steps; t++) {
        const float *waves = r->waves.values + (what->first + t) * r->width;
        for (size_t b = 0; b < what->batch; b++, rows += what->stride)
            turn(waves, r->width / 2, sign, what->heads, rows);
    }
}

void nn_rotary_forward(const nn_rotary *r, const nn_turned *what, float *rows)
{
    turn_all(r, what, 1.0f, rows);
}

void nn_rotary_back(const nn_rotary *r, const nn_turned *what, float *rows)
{
    turn_all(r, what, -1.0f, rows);
}
