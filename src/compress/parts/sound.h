/* sound.h - which parts of a gradient may be taken in. For the schemes that look at a gradient in the pass that takes
 * it in (one_pass in scheme.h). */
#ifndef TW_SOUND_H
#define TW_SOUND_H

#include "scheme.h"

/* The largest norm that gradients may arrive with. */
double tw_sound_most(const tw_scheme *scheme);
/* Whether a norm is finite and no larger, by the sum of squares. */
int tw_sound_squares(const tw_scheme *scheme, double squares);

/* Looks at a compressed tensor's gradient of n elements from `looked` on, up to the end of the group of TW_GROUP in
 * which element `wanted`-1 stands. Groups that may not be taken in become zeros, and the step will be skipped. Returns
 * up to where it has looked. */
size_t tw_sound_silence(tw_scheme *scheme, float *gradient, size_t n, size_t looked, size_t wanted);

/* A kernels' row that takes elements at .. at+n of a block in and looks at them, or if `done` is NULL does not; it
 * lists what stands out behind the `listed` that are listed already, and returns how many. */
typedef size_t (*tw_sound_row)(void *context, size_t at, size_t n, size_t listed, size_t *done);

/* Takes a block of a compressed tensor's gradient in, n elements, but for groups of TW_GROUP that must stay outside: an
 * element is NaN or infinite, or their norm above the bound. The step will then be skipped. Returns how many elements
 * are listed. */
size_t tw_sound_pass(tw_scheme *scheme, const float *gradient, size_t n, tw_sound_row row, void *context);
/* When the whole message is taken in: whether its gradient is sound together with what else belongs to the step. */
void tw_sound_together(tw_scheme *scheme);

#endif
