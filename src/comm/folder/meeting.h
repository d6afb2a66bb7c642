/* meeting.h - the ranks of a group find each other in a folder, each by one file. */
#ifndef TW_COMM_FOLDER_MEETING_H
#define TW_COMM_FOLDER_MEETING_H

#include "store.h"

enum { FOLDER_RANKS = 64 };

/* Waits, in naps of growing length, for all `size` ranks. `session` receives what names this group and no other that
 * met in the folder before. TW_ERROR_PEER: `seconds` passed first; another process has this rank; others count another
 * number of ranks. */
tw_status folder_meet(const store *at, int rank, int size, double seconds, uint64_t *session);

/* A nap, each longer than the one before; it ends at `end` at the latest. Begin with 0. */
void folder_nap(const store *at, double *length, double end);

#endif
