#include "sound.h"

#include "kernels.h"

/* Where scaling made gradients smaller than they are, so it does their bound. */
double tw_sound_most(const tw_scheme *scheme)
{
    return scheme->gradient_scale < 1 ? TW_LARGEST_NORM * scheme->gradient_scale : TW_LARGEST_NORM;
}

int tw_sound_squares(const tw_scheme *scheme, double squares)
{
    double most = tw_sound_most(scheme);
    return squares <= most * most; /* false for NaN */
}

int tw_sound_block(tw_scheme *scheme, const float *gradient, size_t n)
{
    double squares = tw_kernels_best()->sum_squares(gradient, n);
    scheme->squares += squares;
    if (!tw_sound_squares(scheme, scheme->squares)) scheme->finite = 0;
    return tw_sound_squares(scheme, squares);
}

void tw_sound_together(tw_scheme *scheme)
{
    const tw_squares_elsewhere *others = &scheme->elsewhere;
    if (others->ask && !tw_sound_squares(scheme, others->ask(others->context) + scheme->squares)) scheme->finite = 0;
}

size_t tw_sound_pass(tw_scheme *scheme, const float *gradient, size_t n, tw_sound_row row, void *context)
{
    size_t listed = 0;
    for (size_t at = 0, done; at < n; at += done) {
        listed += row(context, at, n - at, listed, &done);
        if (done > 0) continue;
        done = n - at < TW_GROUP ? n - at : TW_GROUP;
        if (tw_sound_block(scheme, gradient + at, done)) listed += row(context, at, done, listed, NULL);
    }
    return listed;
}
