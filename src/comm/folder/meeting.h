/* meeting.h - the ranks of a group find each other in a folder, each by one file. */
#ifndef TW_COMM_FOLDER_MEETING_H
#define TW_COMM_FOLDER_MEETING_H

#include "store.h"

#include <thinwire/thinwire_folder.h>

enum { FOLDER_RANKS = 64 };

/* How long to wait for the others: what tw_folder_join was told. */
typedef struct folder_limits {
    double seconds;
    tw_folder_stopped stopped;
    void *context;
} folder_limits;

/* Waits, in naps of growing length, for all `size` ranks. `session` receives what names this group and no other that
 * met in the folder before. TW_ERROR_PEER: the limits were reached first; another process has this rank; others count
 * another number of ranks. */
tw_status folder_meet(const store *at, int rank, int size, const folder_limits *limits, uint64_t *session);

/* A nap, each longer than the one before; it ends at `end` at the latest. Begin with 0. */
void folder_nap(const store *at, double *length, double end);

#endif
