/* handicap.h - workers slowed down on purpose, to see what the others do. */
#ifndef TRAINER_HANDICAP_H
#define TRAINER_HANDICAP_H

#include <thinwire/thinwire.h>

#define HANDICAP_PAUSES 16

/* What one worker suffers. */
typedef struct handicap {
    double factor;   /* computing a step takes so many times as long; 1 or more */
    double greatest; /* factor of any worker */
    struct {
        uint64_t step; /* counted from 1 */
        double seconds;
    } pauses[HANDICAP_PAUSES];
    size_t pause_count;
} handicap;

/* Reads both lists, each NULL or of all ranks' entries, "3:10,1:2" (RANK:FACTOR) and "0:100:2.5" (RANK:AT:SECONDS), and
 * keeps this rank's. The first names each rank once at most; the second may name several pauses of one. A run has steps
 * 1 .. `steps`. TW_ERROR_ARGUMENT, the same on every rank, names a bad entry. */
tw_status handicap_parse(const char *slow, const char *pause, int rank, int size, uint64_t steps, handicap *h);

/* Seconds that step `step` is to take longer, whose computation took `seconds`. */
double handicap_extra(const handicap *h, uint64_t step, double seconds);
/* Waits that long. */
void handicap_suffer(const handicap *h, uint64_t step, double seconds);

#endif
