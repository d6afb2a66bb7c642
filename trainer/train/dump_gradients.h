/* dump_gradients.h - the gradients that this worker hands to its reducer in chosen steps, kept as files:
 * DIR/step-000123.safetensors, one entry a tensor. `thinwire bench codec --gradients DIR` reads them. */
#ifndef TRAINER_DUMP_GRADIENTS_H
#define TRAINER_DUMP_GRADIENTS_H

#include <thinwire/thinwire.h>

#define DUMP_RANGES 32

/* Steps count from 1, as in metrics.jsonl. Begin with {0}: no steps. */
typedef struct gradient_dump {
    const char *folder;
    struct {
        uint64_t first, last;
    } ranges[DUMP_RANGES];
    size_t range_count;
    int here;        /* this worker's are kept: it began as rank 0, which another may become when that one is lost */
    tw_state *state; /* the step under way, where it is kept here */
} gradient_dump;

/* Reads `text`, "100-107,500": the steps to keep. NULL takes eight in a row (schemes with residuals need neighbours)
 * after the middle of the run. TW_ERROR_ARGUMENT for bad text and for steps that are done or beyond the run's end. The
 * folder's name is borrowed. */
tw_status dump_parse(const char *folder, const char *text, uint64_t done, uint64_t steps, gradient_dump *c);

int dump_is_due(const gradient_dump *c, uint64_t step);

/* A step that is due: begin, every tensor before the reducer gets it, save. */
tw_status dump_begin(gradient_dump *c);
tw_status dump_put(gradient_dump *c, const tw_tensor *tensor, const float *gradient);
tw_status dump_save(gradient_dump *c, uint64_t step);
void dump_release(gradient_dump *c);

#endif
