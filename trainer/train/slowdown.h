/* slowdown.h - workers slowed down on purpose, to see what the others do. */
#ifndef TRAINER_SLOWDOWN_H
#define TRAINER_SLOWDOWN_H

#include <thinwire/thinwire.h>

#define SLOWDOWN_PAUSES 16

/* What one worker suffers. */
typedef struct slowdown {
    double factor;   /* computing a step takes so many times as long; 1 or more */
    double greatest; /* factor of any worker */
    struct {
        uint64_t step; /* counted from 1 */
        double seconds;
    } pauses[SLOWDOWN_PAUSES];
    size_t pause_count;
} slowdown;

/* Reads both lists, each NULL or of all ranks' entries, "3:10,1:2" (RANK:FACTOR) and "0:100:2.5" (RANK:AT:SECONDS), and
 * keeps this rank's. The first names each rank once at most; the second may name several pauses of one. A run has steps
 * 1 .. `steps`. TW_ERROR_ARGUMENT, the same on every rank, names a bad entry. */
tw_status slowdown_parse(const char *slow, const char *pause, int rank, int size, uint64_t steps, slowdown *h);

/* Seconds that step `step` is to take longer, whose computation took `seconds`. */
double slowdown_extra(const slowdown *h, uint64_t step, double seconds);
/* Waits that long. */
void slowdown_suffer(const slowdown *h, uint64_t step, double seconds);

#endif
