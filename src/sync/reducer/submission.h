/* submission.h - a tensor of the step under way as it was handed over. */
#ifndef TW_SUBMISSION_H
#define TW_SUBMISSION_H

#include <thinwire/thinwire.h>

typedef struct tw_submission {
    void *data; /* NULL: not yet handed over */
    tw_dtype dtype;
    int absent;
    int is_sound;                /* the caller has looked at it: see tw_reducer_submit_sound */
    int (*ready)(void *context); /* NULL: it is */
    void *context;
} tw_submission;

/* Reads what a caller says of tensor `index`; refuses what cannot be. */
tw_status tw_submission_read(const tw_gradient *gradient, size_t index, tw_submission *submission);

/* Asks whether the gradient is there, unless it was. TW_ERROR_SYSTEM if it never will be. */
tw_status tw_submission_ask(tw_submission *submission, size_t index, int *ready);

/* The gradient's n elements as floats; of one that is absent the number that changes no sum, -0. */
void tw_submission_get(const tw_submission *submission, float *dst, size_t n);
/* Hands the mean back, rounded to nearest. */
void tw_submission_put(const tw_submission *submission, const float *src, size_t n);

#endif
