/* clip.h - gradients of limited length (Pascanu, Mikolov and Bengio 2013). */
#ifndef TRAINER_CLIP_H
#define TRAINER_CLIP_H

#include <thinwire/thinwire.h>

/* Scales the tensors' values down until their Euclidean norm is `limit`; leaves them where it is no larger or not
 * finite. */
void clip_norm(const tw_tensor *tensors, size_t count, float *values, double limit);

/* The same in parts: the sum of squares of one tensor, of which the tensors' sum is a norm's square; and what to
 * multiply all with, 1 where they stay. */
double clip_squares(const float *values, size_t count);
float clip_scale(double squares, double limit);

#endif
