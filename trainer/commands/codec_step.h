/* codec_step.h - the whole step of a reducer on one source of gradients, timed beside the streaming floor. */
#ifndef TRAINER_CODEC_STEP_H
#define TRAINER_CODEC_STEP_H

#include "codec_source.h"

/* Medians of milliseconds, measured turn by turn. */
typedef struct codec_step_figures {
    double step_ms;  /* from the first submit until wait returns */
    double floor_ms; /* streaming `floor_bytes` an element */
} codec_step_figures;

/* One rank without peers, which exchanges inside wait (overlap=off), in messages of 25 MB as PyTorch's DDP makes them,
 * unless the spec says otherwise: what is left is what the scheme makes its caller pay. Gradients are not in the cache
 * when they are submitted. */
tw_status codec_step_run(const codec_source *source, const char *spec, unsigned floor_bytes,
                         codec_step_figures *figures);

#endif
