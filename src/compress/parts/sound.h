/* sound.h - which parts of a gradient may be taken in. For the schemes that look at a gradient in the pass that takes
 * it in (one_pass in scheme.h). */
#ifndef TW_SOUND_H
#define TW_SOUND_H

#include "scheme.h"

/* Whether a norm is finite and below its bound, by the sum of squares. */
int tw_sound_squares(double squares);

/* A kernels' row that takes elements at .. at+n of a block in and looks at them, or if `done` is NULL does not; it
 * lists what stands out behind the `listed` that are listed already, and returns how many. */
typedef size_t (*tw_sound_row)(void *context, size_t at, size_t n, size_t listed, size_t *done);

/* Takes a block of a compressed tensor's gradient in, n elements, but for groups of TW_GROUP that must stay outside: an
 * element is NaN or infinite, or their norm above the bound. The step will then be skipped. Returns how many elements
 * are listed. */
size_t tw_sound_pass(tw_scheme *scheme, const float *gradient, size_t n, tw_sound_row row, void *context);

#endif
