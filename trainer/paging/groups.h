/* groups.h - which layers come into memory together, within a budget: by what is known of their sizes and times. See
 * partition.h for the search. */
#ifndef TRAINER_GROUPS_H
#define TRAINER_GROUPS_H

#include "error.h"
#include "partition.h"

/* Layers that cannot be cut, one after the other; those that stay in memory are the first or the last ones. */
typedef struct pager_unit {
    size_t end; /* elements up to here */
    unsigned char stays;
} pager_unit;

/* Seconds, and the bytes that they moved. */
typedef struct group_pace {
    double seconds, bytes;
} group_pace;

/* What was measured in so many steps, in all of them together; 0: nothing is known yet. */
typedef struct group_times {
    double steps;
    group_pace load, load_back, store; /* see partition_problem */
    struct {
        double forward, backward;
    } units[]; /* seconds of computing */
} group_times;

typedef struct groups_problem {
    const pager_unit *units;
    size_t count;
    const group_times *times;
    size_t arrays; /* as long as the model: weights, gradients and state */
    size_t budget; /* bytes */
} groups_problem;

typedef struct groups_found {
    size_t begin;                /* elements up to here are always in memory; */
    size_t ends[PARTITION_MOST]; /* groups of those up to here come and go; and what is behind is in memory, too */
    size_t count;
    double seconds; /* of a step */
} groups_found;

/* The fastest that fit. TW_ERROR_ARGUMENT says which budget is the least that works. */
tw_status groups_find(const groups_problem *problem, groups_found *found);

/* Bytes that are brought in at once of an array that passes by: whole pages, and one at least. */
size_t groups_piece(size_t budget);

/* "2.4MB": up to what --memory-budget takes. */
const char *groups_bytes_text(size_t bytes, char text[32]);

#endif
