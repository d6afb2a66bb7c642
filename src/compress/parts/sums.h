/* sums.h - what this rank remembers of the sums of its pieces (scatter.h): what their section did not say, which goes
 * into the next step's sums. It is one element in N of the compressed tensors. */
#ifndef TW_SUMS_H
#define TW_SUMS_H

#include "kept.h"
#include "scatter.h"

typedef struct tw_sums {
    const tw_scatter *scatter; /* NULL: nothing is remembered */
    tw_kept kept;              /* one piece after the other */
    tw_kept before;            /* as it was before the last step that had sums */
    uint64_t changed;          /* that step, by scheme->begun */
    size_t count, *offset;     /* elements of these, and where each tensor's begin */
} tw_sums;

/* `format`: TW_KEPT_FP32 or _BF16. */
tw_status tw_sums_create(tw_sums *sums, const tw_scatter *scatter, int format);
void tw_sums_destroy(tw_sums *sums);

/* That of this rank's piece of a tensor. */
tw_kept tw_sums_of(const tw_sums *sums, size_t tensor);
/* Before the step under way changes it: notes it for revert. */
void tw_sums_change(tw_sums *sums, size_t tensor);
/* The same for a caller who notes it block by block, as fp32: where. */
float *tw_sums_begin(tw_sums *sums, size_t tensor);
/* As it was before the step; 1 if that had changed any. */
int tw_sums_revert(tw_sums *sums);
/* Each as "section/NAME", of as many elements as the piece has. */
tw_status tw_sums_walk(const tw_sums *sums, tw_walk *walk);

#endif
