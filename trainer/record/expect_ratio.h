/* expect_ratio.h - what a run was told to reach, held against what it came to. */
#ifndef TRAINER_EXPECT_RATIO_H
#define TRAINER_EXPECT_RATIO_H

#include "worker.h"

/* --expect-ratio: TW_ERROR_ARGUMENT when the message ratio is below it, or unknown because no step was both behind the
 * scheme's warm-up and applied. Every rank calls it with the same means and comes to the same answer. */
tw_status expect_ratio_check(worker *w, const totals *mean);

#endif
