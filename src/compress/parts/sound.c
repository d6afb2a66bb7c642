#include "sound.h"

#include "kernels.h"

int tw_sound_squares(double squares)
{
    return squares <= TW_LARGEST_NORM * TW_LARGEST_NORM; /* false for NaN */
}

/* A group that is not quiet. */
static int is_sound(tw_scheme *scheme, const float *gradient, size_t n)
{
    double squares = tw_kernels_best()->sum_squares(gradient, n);
    scheme->squares += squares;
    if (!tw_sound_squares(scheme->elsewhere + scheme->squares)) scheme->finite = 0;
    return tw_sound_squares(squares);
}

size_t tw_sound_pass(tw_scheme *scheme, const float *gradient, size_t n, tw_sound_row row, void *context)
{
    size_t listed = 0;
    for (size_t at = 0, done; at < n; at += done) {
        listed += row(context, at, n - at, listed, &done);
        if (done > 0) continue;
        done = n - at < TW_GROUP ? n - at : TW_GROUP;
        if (is_sound(scheme, gradient + at, done)) listed += row(context, at, done, listed, NULL);
    }
    return listed;
}
