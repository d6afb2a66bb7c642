/* environment.h - what the environment tells a transport that is opened by its name. */
#ifndef TW_COMM_SHARED_ENVIRONMENT_H
#define TW_COMM_SHARED_ENVIRONMENT_H

#include <thinwire/thinwire_plugin.h>

/* The first of the names, up to NULL, that is set; *value stays where none is. TW_ERROR_ARGUMENT: it is no number. */
tw_status tw_environment_number(const char *const *names, int *value);
/* The same of one name, and seconds. */
tw_status tw_environment_seconds(const char *name, double *seconds);

/* Rank, size and the seconds in which the others have to come, of THINWIRE_RANK, THINWIRE_SIZE and
 * THINWIRE_JOIN_SECONDS, or of what torchrun, Slurm and MPI's launchers set. The rank and the seconds may be unset.
 * TW_ERROR_ARGUMENT names the variable, or that transport `name` needs the size. */
tw_status tw_environment_group(const char *name, int *rank, int *size, double *seconds);

#endif
