/* codec_run.h - one scheme compressing one source of gradients, timed beside the streaming floor. */
#ifndef TRAINER_CODEC_RUN_H
#define TRAINER_CODEC_RUN_H

#include "codec_source.h"

enum { CODEC_THREADS = 64 };

/* Medians of milliseconds; means over the timed steps of what a step weighed, over all tensors. */
typedef struct codec_figures {
    double encode_ms, decode_ms, floor_ms;
    double first_ms;                 /* of encode: what comes before the first exchange */
    double message_bytes;            /* all that a rank contributes */
    double exact_bytes, index_bytes; /* of these */
    double elements_sent;            /* of compressed tensors */
    double bound_bits;               /* the sum of log2 C(n, k) over tensors of which k of n elements were sent */
} codec_figures;

/* Every tensor gets a scheme of its own, rank 0 of 1, so that what each of them cost is known; tensors are shared out
 * among the threads. The floor streams `floor_bytes` an element. */
tw_status codec_run(const codec_source *source, const char *spec, unsigned floor_bytes, size_t threads,
                    codec_figures *figures);

#endif
