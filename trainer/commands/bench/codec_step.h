/* codec_step.h - the whole step of a reducer on one source of gradients, timed beside the streaming floor. */
#ifndef TRAINER_CODEC_STEP_H
#define TRAINER_CODEC_STEP_H

#include "codec_source.h"

enum { CODEC_REDUCER_THREADS = 7 }; /* the most that the option takes */

/* Medians of milliseconds, measured turn by turn. */
typedef struct codec_step_figures {
    double step_ms;  /* from the first submit until wait returns */
    double floor_ms; /* streaming `floor_bytes` an element */
    /* On several threads: the step with as many coding at once, and the same streaming shared among them. Else 0. */
    double shared_ms, shared_floor_ms;
} codec_step_figures;

/* One rank without peers, which exchanges inside wait (overlap=off), in messages of 25 MB as PyTorch's DDP makes them,
 * unless the spec says otherwise: what is left is what the scheme makes its caller pay. Gradients are not in the cache
 * when they are submitted. With threads above 1, and as many as a reducer takes, a second one takes turns with it,
 * with overlap=on and that option threads. */
tw_status codec_step_run(const codec_source *source, const char *spec, unsigned floor_bytes, size_t threads,
                         codec_step_figures *figures);

#endif
