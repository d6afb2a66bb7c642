/* partition.h - which layers are brought into memory together.
 *
 * A step goes through the groups from the first to the last, and back. While one computes, the next is loaded; on the
 * way back the gradients of the one before are stored, too. ATOM (Wu, Rao and Chen, arXiv 2403.10504) searches for
 * groups whose computing covers the loading; the cost below and the search are a reconstruction. */
#ifndef TRAINER_PARTITION_H
#define TRAINER_PARTITION_H

#include <stddef.h>

enum { PARTITION_MOST = 40 }; /* units: the search takes the fourth power of their number */

/* What cannot be cut: the weights of a layer. */
typedef struct partition_unit {
    size_t bytes;
    double forward, backward; /* seconds of computing */
} partition_unit;

typedef struct partition_problem {
    const partition_unit *units;
    size_t count;
    size_t room;                   /* bytes */
    double load, load_back, store; /* seconds a byte: weights on the way forward and back, and gradients */
} partition_problem;

/* Groups: group g ends before unit ends[g]. Fills `ends`, of problem->count, with the fastest that fit, and returns how
 * many groups there are; 0: none fit. Of two neighbours the weights of both and the gradients of one are in memory. */
size_t partition_find(const partition_problem *problem, size_t *ends);

/* Seconds of a step with such groups: computing and moving that it does not cover. */
double partition_seconds(const partition_problem *problem, const size_t *ends, size_t groups);

/* The least room with which groups can be found. */
size_t partition_least(const partition_problem *problem);

/* Joins the neighbours that are smallest together, until there are at most `most` units. counts[i] is of how many units
 * the i-th is made, and was before, one each. Returns how many units are left. */
size_t partition_join(partition_unit *units, size_t *counts, size_t count, size_t most);

#endif
