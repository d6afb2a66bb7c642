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

#include "groups.h"

#include <stdint.h>

typedef struct pager pager;

typedef enum pager_pass { PAGER_FORWARD, PAGER_BACKWARD, PAGER_CHANGE /* of weights, by hand */ } pager_pass;

enum { PAGER_STATES = 2, PAGER_SHARED = 2 };

typedef struct pager_options {
    size_t budget;      /* bytes of weights, gradients and state in memory */
    size_t states;      /* arrays of the optimiser that are as long as the weights: 0 .. PAGER_STATES */
    size_t shared;      /* and of a meeting: 0 .. PAGER_SHARED */
    const char *folder; /* of the file, which has no name there and goes with the process; or one yet to be made */
    /* Makes data what it is in a certain process, for all that meet: then groups are the same, and meet in one order. A
     * collective. NULL: nobody else is there. */
    tw_status (*agree)(void *context, void *data, size_t bytes);
    void *context;
} pager_options;

tw_status pager_create(const pager_options *options, pager **out);
void pager_destroy(pager *p);

/* What is paged, zeros up to now, of pages_take, and stays where it is. TW_ERROR_ARGUMENT says which budget is the
 * least that works, TW_ERROR_IO what is wrong with the file. Where all of it fits the budget nothing is paged. */
tw_status pager_lay(pager *p, const pager_unit *units, size_t count, float *values, float *gradients);
int pager_is_needed(const pager *p);

/* What may be done with elements when they are next in memory. PAGER_TAKE: a step, with their gradients and the
 * optimiser's arrays. PAGER_MEET: what goes with a meeting's arrays, after the step; gradients are then room to work
 * in. */
enum { PAGER_TAKE = 1, PAGER_MEET = 2 };

/* Does so with elements begin .. end. Any thread may call it, one at a time, and all that meet call it in the same
 * order. */
typedef tw_status (*pager_update)(void *context, size_t begin, size_t end, int todo);
/* The arrays of the optimiser and then of a meeting, of pages_take, zeros up to now. */
tw_status pager_attach(pager *p, float *const *states, pager_update update, void *context);

/* Before elements begin .. end, which stand in one unit, are used. */
tw_status pager_use(pager *p, size_t begin, size_t end, pager_pass pass);
/* A way back has ended: its gradients are in memory or in the file. `todo` is then to be done with each group; 0: the
 * gradients are forgotten. */
tw_status pager_step(pager *p, int todo);
/* PAGER_MEET, beside what waits to be done. */
void pager_meet(pager *p);

/* All of it as it is in the file, for those who do not compute: the values, and the optimiser's arrays. It takes memory
 * of the system's cache of files, that is given back on demand. */
const char *pager_folder(const pager *p);
float *pager_values(const pager *p);
float *pager_state(const pager *p, size_t index);
float *pager_shared(const pager *p, size_t index);
/* The values become what that array of a meeting was, and it becomes what they were. */
tw_status pager_swap(pager *p, size_t index);
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
    double measured;     /* of the passes since then that took a step, on average */
} pager_counts;
void pager_count(pager *p, pager_counts *counts);

#endif
