/* moments.h - a run of AdamW goes on with a scheme that owns its moments, and such a scheme's run without it, or with
 * another of its kind. */
#ifndef TRAINER_MOMENTS_H
#define TRAINER_MOMENTS_H

#include "regroup.h"

enum { SYNC_MOST = 1024 }; /* characters of a --sync that it can go on from */

/* Whether a run of that --optimizer that was written with the one --sync can go on with the other: both specs keep the
 * same moments, the optimiser's of the mean gradient or the scheme's, and one has a scheme's. */
int moments_may_move(int optimizer, const char *before, const char *now);

/* The specs that it can go on with, for a person; NULL: none but its own. */
const char *moments_may_move_to(int optimizer, const char *before);

/* Brings them from where `before` kept them, in a checkpoint whose model file was read, to where this run keeps them.
 * What the workers held back is paid out by the momentum. A collective: all learn whether it succeeded. */
tw_status moments_move(worker *w, const char *before, const regrouping *from);

#endif
