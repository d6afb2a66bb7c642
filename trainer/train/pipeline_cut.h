/* pipeline_cut.h - which stage of a pipeline gets which layers.
 *
 * A pipeline is as fast as its slowest stage. So the cut is the one whose slowest stage is fastest, among those in
 * which each stage fits its machine's memory: exact, by a dynamic programme over stages and ends. What messages take is
 * not looked at: they travel while stages compute. */
#ifndef TRAINER_PIPELINE_CUT_H
#define TRAINER_PIPELINE_CUT_H

#include <stddef.h>
#include <thinwire/thinwire.h>

enum { PIPELINE_STAGES = 64, PIPELINE_UNITS = 256 };

/* What one machine is for one stage. */
typedef struct pipeline_machine {
    double seconds[PIPELINE_UNITS]; /* of forward, forward again and backward of each unit */
    double room;                    /* bytes */
} pipeline_machine;

typedef struct pipeline_problem {
    size_t units, stages;
    const pipeline_machine *machines; /* of stage s the s-th */
    const size_t *elements;           /* of each unit */
    size_t states;                    /* arrays that the optimiser keeps, and a sum of gradients where there is one */
} pipeline_problem;

/* Copies of its weights that a stage holds, gradients and optimiser's states among them, while it trains. */
size_t pipeline_copies(size_t stage, size_t stages, size_t states);

/* ends[s]: stage s ends before that unit; each has a unit or more. Returns the slowest stage's seconds; INFINITY: no
 * cut fits. */
double pipeline_cut(const pipeline_problem *problem, size_t *ends);

#endif
