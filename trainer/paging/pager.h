/* pager.h - a model and its optimiser's state in a file, of which no more than a budget is in memory.
 *
 * Layers go by in groups. Whoever uses a tensor says so first (pager_use); while its group computes, a thread brings in
 * the one that comes next on the way, forward or back. What is not in memory has no access: who forgets to ask is
 * stopped by the processor.
 *
 *                  on the way forward                             on the way back
 *     into memory  weights; where a step waits to be taken,       weights; zeros for gradients
 *                  a piece of gradients and state at a time
 *     to the file  weights and state that the step has changed    gradients
 *
 * The last group stays for the way back, and the first for the next step: 2S - 1 loads for the first step with S
 * groups, and 2S - 2 for each later one. A step is taken (pager_step) when its whole gradient is known, so that it can
 * be clipped by its norm, and skipped for a NaN; a group takes it when it is next brought in. The bits are those of a
 * step in memory. After ATOM (Wu, Rao and Chen, arXiv 2403.10504), as far as its public descriptions go: this is a
 * reconstruction.
 *
 * A pager belongs to one thread. */
#ifndef TRAINER_PAGER_H
#define TRAINER_PAGER_H

#include "error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct pager pager;

typedef enum pager_pass { PAGER_FORWARD, PAGER_BACKWARD, PAGER_CHANGE /* of weights, by hand */ } pager_pass;

enum { PAGER_STATES = 2 };

typedef struct pager_options {
    size_t budget;      /* bytes of weights, gradients and state in memory */
    size_t states;      /* arrays of the optimiser that are as long as the weights: 0 .. PAGER_STATES */
    const char *folder; /* of the file, which has no name there and goes with the process; or one yet to be made */
} pager_options;

tw_status pager_create(const pager_options *options, pager **out);
void pager_destroy(pager *p);

/* Layers that cannot be cut, one after the other; those that stay in memory are the first or the last ones. */
typedef struct pager_unit {
    size_t end; /* elements up to here */
    unsigned char stays;
} pager_unit;

/* What is paged, zeros up to now, of pages_take, and stays where it is. TW_ERROR_ARGUMENT says which budget is the
 * least that works, TW_ERROR_IO what is wrong with the file. Where all of it fits the budget nothing is paged. */
tw_status pager_lay(pager *p, const pager_unit *units, size_t count, float *values, float *gradients);
int pager_is_needed(const pager *p);

/* Takes one step with elements begin .. end, whose gradient is multiplied by `scale` first. Any thread may call it. */
typedef void (*pager_update)(void *context, size_t begin, size_t end, float scale);
/* The optimiser's arrays, of pages_take, zeros up to now. */
tw_status pager_attach(pager *p, float *const *states, pager_update update, void *context);

/* Before elements begin .. end, which stand in one unit, are used. */
tw_status pager_use(pager *p, size_t begin, size_t end, pager_pass pass);
/* The step whose gradients are in memory or in the file is to be taken, or, with `taken` 0, forgotten. */
tw_status pager_step(pager *p, float scale, int taken);

/* All of it as it is in the file, for those who do not compute: the values, and the optimiser's arrays. It takes memory
 * of the system's cache of files, that is given back on demand. */
const char *pager_folder(const pager *p);
float *pager_values(const pager *p);
float *pager_state(const pager *p, size_t index);
/* Before it is read: every step is taken, and what is in memory is in the file. */
tw_status pager_flush(pager *p);
/* What was read of it is given back at once. */
void pager_forget(const pager *p);
/* After it was written. */
tw_status pager_reload(pager *p);

typedef struct pager_counts {
    size_t budget, total; /* bytes: may be and would be in memory */
    size_t resident, most_resident;
    size_t groups;
    uint64_t loads;      /* of groups, on either way */
    double seconds_wait; /* for them */
    double predicted;    /* seconds of a pass forward and back, by what was measured before; 0: nothing is yet */
    double measured;     /* of the passes since then, on average */
} pager_counts;
void pager_count(pager *p, pager_counts *counts);

#endif
