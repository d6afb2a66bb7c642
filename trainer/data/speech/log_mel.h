/* log_mel.h - log-mel features of speech. */
#ifndef TRAINER_SPEECH_LOG_MEL_H
#define TRAINER_SPEECH_LOG_MEL_H

#include "feature_settings.h"

/* The tables for one set of settings and room for one frame: each thread needs its own. */
typedef struct log_mel log_mel;

/* TW_ERROR_ARGUMENT if a mel bin is narrower than the spectrum's resolution and would never hear anything. */
tw_status log_mel_create(const feature_settings *settings, log_mel **created);
void log_mel_destroy(log_mel *f);

/* What an utterance's samples become: rows (feature_frames(count), feature_width()).
 *
 *   1. A frame is window_ms long, one every hop_ms, as many as fit whole. Pre-emphasis within the frame (its first
 *      sample has itself for a predecessor), the window, the power of the spectrum.
 *   2. Triangular filters, evenly spaced and straight on the mel scale; ln(max(power, floor)).
 *   3. Deltas: d[t] = sum over n = 1, 2 of n (c[t + n] - c[t - n]) / 10, the first and last frame going on for ever.
 *   4. Every column gets mean 0, and variance 1 (one that hardly varies is only centred).
 *   5. Row i joins the frames i * stride .. i * stride + stack - 1; past the end, the last one again. */
tw_status log_mel_extract(log_mel *f, const float *samples, size_t count, float *rows);

/* A filter bank's weight of `bin` at a frequency in Hz; what the tables are made of. */
double mel_weight(const feature_settings *settings, int bin, double frequency);

#endif
