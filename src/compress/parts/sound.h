/* sound.h - which gradients may be taken in. For the schemes that look at a gradient in the pass that takes it in
 * (one_pass in scheme.h). */
#ifndef TW_SOUND_H
#define TW_SOUND_H

#include "scheme.h"

/* Whether a norm is finite and below its bound, by the sum of squares. */
int tw_sound_squares(double squares);

/* Looks at a block of a compressed tensor's gradient. 0 if it must not be taken in: an element is NaN or infinite, or
 * their norm above the bound; the step will then be skipped. */
int tw_sound_block(tw_scheme *scheme, const float *gradient, size_t n);

#endif
