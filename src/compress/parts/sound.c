#include "sound.h"

#include "kernels.h"

/* Elements below it make no norm above the bound, however many they are. */
static const float QUIET = 1e24F;

int tw_sound_squares(double squares)
{
    return squares <= TW_LARGEST_NORM * TW_LARGEST_NORM; /* false for NaN */
}

int tw_sound_block(tw_scheme *scheme, const float *gradient, size_t n)
{
    if (tw_kernels_best()->all_below(gradient, n, QUIET)) return 1;
    double squares = tw_kernels_best()->sum_squares(gradient, n);
    scheme->squares += squares;
    if (!tw_sound_squares(scheme->elsewhere + scheme->squares)) scheme->finite = 0;
    return tw_sound_squares(squares);
}
