/* share.h - what is one process's of a machine's memory. */
#ifndef TRAINER_SHARE_H
#define TRAINER_SHARE_H

#include <stddef.h>

/* The bytes of --memory that this process may use: the ranks that a launcher (Open MPI's or MPICH's mpirun, srun) has
 * started on this machine divide them. A process that was started by itself has all. */
size_t share_of_memory(long megabytes);

#endif
