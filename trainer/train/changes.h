/* changes.h - other specs that a run of --sync auto went on with, in its configuration: "STEP SPEC; STEP SPEC; ...",
 * each from the step of that number on, counted from 0. */
#ifndef TRAINER_CHANGES_H
#define TRAINER_CHANGES_H

#include <thinwire/thinwire.h>

enum { CHANGES_SPEC = 128, CHANGES_MOST = 32 };

typedef struct run_change {
    uint64_t step;
    char spec[CHANGES_SPEC];
} run_change;

typedef struct run_changes {
    run_change all[CHANGES_MOST];
    size_t count;
} run_changes;

/* NULL is the text of none. TW_ERROR_ARGUMENT for any other text, and unless each step comes after the one before. */
tw_status changes_read(const char *text, run_changes *changes);
/* malloc'd; NULL: no memory. */
char *changes_text(const run_changes *changes);

/* The spec that made the step before `step`; `first` is that of the run's beginning. */
const char *changes_before(const run_changes *changes, const char *first, uint64_t step);
/* One more, from `step` on; 0: there is no room for it. */
int changes_add(run_changes *changes, uint64_t step, const char *spec);

#endif
