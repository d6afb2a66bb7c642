/* strips.h - a stream of tokens cut into parallel strips, read a few tokens of each at a time.
 *
 * A model with a state that is carried from batch to batch reads every strip from its beginning to its end. The stream
 * is cut into `count` strips of equal length, one after the other; a worker reads `batch` of them, and all workers
 * together read the same strips however many they are. What is left over at the end of the stream is dropped, and so
 * is what at the end of a strip does not fill a step. */
#ifndef TRAINER_STRIPS_H
#define TRAINER_STRIPS_H

#include "corpus.h"

typedef struct strips {
    const uint32_t *tokens; /* of this worker's first strip; borrowed */
    size_t length;          /* tokens of a strip */
    size_t batch;           /* strips of this worker */
    size_t unroll;          /* tokens of each strip a step reads */
    uint64_t steps;         /* of a pass over the strips */
} strips;

/* Worker `rank` of `workers` gets the strips rank * batch .. rank * batch + batch - 1 of workers * batch. `name` stands
 * for the stream in the text of TW_ERROR_ARGUMENT: it is too short for a single step. */
tw_status strips_cut(const token_stream *stream, const char *name, size_t batch, int workers, int rank, size_t unroll,
                     strips *out);

/* Step 0 .. steps-1 of a pass: inputs and targets (unroll, batch), time before strip; the target is the token that
 * follows in the strip. */
void strips_read(const strips *s, uint64_t step, int32_t *inputs, int32_t *targets);

#endif
