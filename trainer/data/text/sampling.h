/* sampling.h - choosing the next token from a model's scores. */
#ifndef TRAINER_SAMPLING_H
#define TRAINER_SAMPLING_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

typedef struct sampling {
    double temperature; /* scores are divided by it; 0: always the best token */
    size_t top_k;       /* only so many of the best are drawn from; 0: all */
    uint64_t seed;
} sampling;

/* The token drawn with probability softmax(scores / temperature), a function of the arguments alone; `draw` counts the
 * draws of a text. Of equal scores the token with the lower id is the better. TW_ERROR_NONFINITE where a score is
 * not finite. */
tw_status sample_token(const sampling *s, const float *scores, size_t count, uint64_t draw, uint32_t *token);

#endif
