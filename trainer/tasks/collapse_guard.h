/* collapse_guard.h - ends a pre-training whose codes have died.
 *
 * A quantiser that calls everything by a few names makes the contrastive task easy: its loss falls and its accuracy
 * rises, like those of a success. What tells is how many codes are in use, and how many distractors had to be left out
 * because they had the code that was asked for. Both are looked at over windows of steps, of all workers. */
#ifndef TRAINER_TASKS_COLLAPSE_GUARD_H
#define TRAINER_TASKS_COLLAPSE_GUARD_H

#include "w2v_bert.h"

#include <stdbool.h>

enum { COLLAPSE_WINDOW = 50, COLLAPSE_GRACE = 100 }; /* steps; a fresh net uses few codes */

typedef struct collapse_guard {
    size_t groups, codes;
    double *counts; /* (groups * codes) targets, then all distractors, then those of the same code, then hidden rows */
    bool told;
} collapse_guard;

tw_status collapse_guard_create(size_t groups, size_t codes, collapse_guard *g);
void collapse_guard_release(collapse_guard *g);
size_t collapse_guard_count(const collapse_guard *g); /* of the counts */

/* Adds what a step of this worker has seen. */
void collapse_guard_add(collapse_guard *g, const w2v_bert_result *result);
/* Whether a window ends before this step, and is to be judged. */
bool collapse_guard_is_due(uint64_t step, uint64_t warmup);
/* Judges `counts`, of all workers, as floats. TW_ERROR_NONFINITE says what was seen. */
tw_status collapse_guard_judge(const collapse_guard *g, const float *counts, uint64_t step);
/* The next window begins. */
void collapse_guard_clear(collapse_guard *g);

#endif
