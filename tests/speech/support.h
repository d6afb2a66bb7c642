/* support.h - what the tests of speech share. */
#ifndef TEST_SPEECH_SUPPORT_H
#define TEST_SPEECH_SUPPORT_H

#include "support/assert.h"
#include "support/random.h"

/* The call is refused with a text that holds `word`. */
#define assert_refused(call, word) assert_fails(call, TW_ERROR_ARGUMENT, word)

static inline void softmax(const float *logits, size_t labels, double *dst)
{
    double sum = 0.0;
    for (size_t k = 0; k < labels; k++) sum += dst[k] = exp(logits[k]);
    for (size_t k = 0; k < labels; k++) dst[k] /= sum;
}

/* Goes through paths of one label a frame: 0 0 0, 1 0 0, ... Returns 0 after the last. */
static inline int next_path(uint32_t *path, size_t frames, size_t labels)
{
    for (size_t t = 0; t < frames; t++) {
        if (++path[t] < labels) return 1;
        path[t] = 0;
    }
    return 0;
}

/* What a path spells: runs merged, blanks removed. */
static inline size_t collapse(const uint32_t *path, size_t frames, uint32_t *dst)
{
    size_t count = 0;
    for (size_t t = 0; t < frames; t++)
        if (path[t] != 0 && (t == 0 || path[t] != path[t - 1])) dst[count++] = path[t];
    return count;
}

#endif
