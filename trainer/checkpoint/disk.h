/* disk.h - ranks share a disk or have one each, and nobody but they can tell. */
#ifndef TRAINER_DISK_H
#define TRAINER_DISK_H

#include "worker.h"

/* Every rank calls it, with a folder that is there. *first: whether this rank is the first of those that see the same
 * folder; rank 0 always is. */
tw_status disk_elect(worker *w, const char *folder, int *first);

#endif
