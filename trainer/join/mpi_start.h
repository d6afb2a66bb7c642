/* mpi_start.h - joining the ranks of a launcher, for so long at most. */
#ifndef TRAINER_MPI_START_H
#define TRAINER_MPI_START_H

#include <thinwire/thinwire.h>

/* tw_comm_open, within `seconds`, but within twenty at least: starting processes takes longer than an answer of one
 * that runs. Where THINWIRE_JOIN_SECONDS is in the environment, it says how long instead. MPI_Init waits for all ranks,
 * without a deadline and without a way back: when it has not ended by then, the process ends, with one line on standard
 * error and EXIT_PEER_LOST. */
tw_status mpi_start_within(const char *transport, double seconds, tw_comm **comm);

#endif
