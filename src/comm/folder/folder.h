/* folder.h - a group over a folder that its machines share. */
#ifndef TW_COMM_FOLDER_H
#define TW_COMM_FOLDER_H

#include <thinwire/thinwire_plugin.h>

/* A collective of `size` ranks, each with a number of its own, in a folder that is there. What an earlier group of this
 * rank left there is removed. Errors as for folder_meet, and TW_ERROR_ARGUMENT, TW_ERROR_IO, TW_ERROR_MEMORY. */
tw_status folder_join(const char *path, int rank, int size, double seconds, tw_comm **comm);

#endif
