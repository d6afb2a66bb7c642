/* stamp.h - what the files of one checkpoint have in common, so that a file of another is not taken for one of them.
 *
 * A run is named at random when it first saves, and keeps its name for good. A checkpoint is known by the checksum of
 * its model file. Each worker's file says both, beside its rank and the number of workers. Checkpoints of version 0.1
 * say neither. */
#ifndef TRAINER_STAMP_H
#define TRAINER_STAMP_H

#include "checksum.h"
#include "worker.h"

typedef struct stamp {
    char run[RUN_NAME]; /* "": of version 0.1 */
    char model[CHECKSUM_TEXT];
    int workers;
} stamp;

void stamp_name_run(char name[RUN_NAME]);
/* For the model file; before it has its checksum. */
tw_status stamp_put_run(const char *run, tw_state *model);
/* From a model file that has its checksum. `workers`: how many there are where it does not say so. */
void stamp_read(const tw_state *model, int workers, stamp *s);

/* One that another rank has told: its texts end. TW_ERROR_PACKET: it is of no possible number of workers. */
tw_status stamp_hear(stamp *s);

/* For a worker's file; before it has its checksum. */
tw_status stamp_put(const stamp *s, int rank, tw_state *state);
/* TW_ERROR_STATE when a worker's file, from `path`, is not this rank's or of another checkpoint. */
tw_status stamp_check(const stamp *s, int rank, const tw_state *state, const char *path);

#endif
