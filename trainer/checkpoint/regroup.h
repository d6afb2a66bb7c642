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
    int without_scheme; /* what that remembers takes another way: see moments.h */
} regrouping;

/* The old workers' files, one open at a time; regroup_read is a tw_state_source. Whoever has read destroys `open`. */
typedef struct regroup_reader {
    const regrouping *from;
    tw_state *open;
} regroup_reader;
tw_status regroup_read(void *context, int rank, const tw_state **state);
/* What failed is said to be of that checkpoint. */
tw_status regroup_name(const worker *w, const regrouping *from, tw_status status);

/* After the model file was read. A collective: all learn whether it succeeded. */
tw_status regroup_run(worker *w, const regrouping *from);

#endif
