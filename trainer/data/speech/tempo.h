/* tempo.h - utterances said faster or slower, made from their features: who speaks in training may be in no hurry. */
#ifndef TRAINER_SPEECH_TEMPO_H
#define TRAINER_SPEECH_TEMPO_H

#include <stddef.h>
#include <stdint.h>

/* How many rows an utterance of `frames` has in this epoch: up to `most` of them more or fewer (0.2: a fifth), all as
 * likely, and at least one. Depends on (seed, epoch, utterance) alone. */
size_t tempo_frames(double most, uint64_t seed, uint64_t epoch, uint32_t utterance, size_t frames);

/* Spreads rows (frames, width) over `count` rows, by linear interpolation; the ends stay the ends. */
void tempo_change(const float *rows, size_t frames, size_t width, float *dst, size_t count);

#endif
