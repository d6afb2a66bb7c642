/* decode.h - from what a CTC network said to the labels it most likely means. */
#ifndef TRAINER_DECODE_H
#define TRAINER_DECODE_H

#include "utterance.h"
#include <stdint.h>
#include <thinwire/thinwire.h>

/* The most likely label of every frame (of equals the first), runs merged, blanks removed. `dst` has room for u->frames
 * labels; returns how many there are. */
size_t decode_greedy(const utterance *u, uint32_t *dst);

#endif
