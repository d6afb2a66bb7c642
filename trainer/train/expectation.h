/* expectation.h - what a run was told to reach, held against what it came to. */
#ifndef TRAINER_EXPECTATION_H
#define TRAINER_EXPECTATION_H

#include "worker.h"

/* --expect-ratio: TW_ERROR_ARGUMENT when the message ratio is below it, or unknown because the run never left the
 * scheme's warm-up. Every rank calls it with the same means and comes to the same answer. */
tw_status expectation_check(worker *w, const totals *mean);

#endif
