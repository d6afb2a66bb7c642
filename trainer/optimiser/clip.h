/* clip.h - gradients of limited length (Pascanu, Mikolov and Bengio 2013). */
#ifndef TRAINER_CLIP_H
#define TRAINER_CLIP_H

#include <stddef.h>

/* Scales the values down until their Euclidean norm is `limit`; leaves them where it is no larger or not finite. */
void clip_norm(float *values, size_t count, double limit);

#endif
