/* share.h - what is one process's of a machine's memory. */
#ifndef TRAINER_SHARE_H
#define TRAINER_SHARE_H

#include <stddef.h>

/* The ranks that a launcher (Open MPI's or MPICH's mpirun, srun) has started on this machine, with this one; 1 for a
 * process that was started by itself. */
long share_ranks(void);

/* The bytes of --memory that this process may use: the ranks of this machine divide them. */
size_t share_of_memory(long megabytes);

#endif
