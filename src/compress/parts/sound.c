#include "sound.h"

#include "kernels.h"

#include <string.h>

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

/* Whether a block of a compressed tensor's gradient may be taken in: no element is NaN or infinite, and their norm is
 * not above the bound. If it may not, or all blocks so far are above the bound together, the step will be skipped. */
static int is_sound(tw_scheme *scheme, const float *gradient, size_t n)
{
    double squares = tw_kernels_best()->sum_squares(gradient, n);
    scheme->squares += squares;
    if (!tw_sound_squares(scheme, scheme->squares)) scheme->finite = 0;
    return tw_sound_squares(scheme, squares);
}

size_t tw_sound_silence(tw_scheme *scheme, float *gradient, size_t n, size_t looked, size_t wanted)
{
    size_t group_end = (wanted + TW_GROUP - 1) / TW_GROUP * TW_GROUP, end = group_end < n ? group_end : n;
    if (tw_kernels_best()->all_below(gradient + looked, end - looked, TW_LOUD)) return end;
    for (size_t i = looked; i < end; i += TW_GROUP) {
        size_t length = end - i < TW_GROUP ? end - i : TW_GROUP;
        if (!is_sound(scheme, gradient + i, length)) memset(gradient + i, 0, length * sizeof *gradient);
    }
    return end;
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
        if (is_sound(scheme, gradient + at, done)) listed += row(context, at, done, listed, NULL);
    }
    return listed;
}
