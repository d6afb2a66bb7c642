/* regroup.h - a run whose exchange can regroup goes on with another number of workers than wrote its checkpoint.
 * What the old workers held back is dealt out to the new ones, their sums are added up; the running statistics are the
 * mean that is in the model file. Every rank reads the files of those old workers whose part it takes over. Of those
 * whose files are lost nothing is taken over. */
#ifndef TRAINER_REGROUP_H
#define TRAINER_REGROUP_H

#include "checkpoint_files.h"
#include "stamp.h"

typedef struct regrouping {
    const char *folder; /* the checkpoint's */
    const stamp *stamp;
    uint64_t step; /* that its files say */
    const checkpoint_files *files;
} regrouping;

/* After the model file was read. A collective: all learn whether it succeeded. */
tw_status regroup_run(worker *w, const regrouping *from);

#endif
