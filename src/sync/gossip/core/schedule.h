/* schedule.h - who averages with whom in a round of gossip. Every rank computes everybody's partners by itself, so that
 * no message is needed to agree on them; a partner always has this rank for its partner, too. */
#ifndef TW_SYNC_SCHEDULE_H
#define TW_SYNC_SCHEDULE_H

#include <stdint.h>
#include <thinwire/thinwire.h>

/* The ranks stand on a ring, in their order or shuffled anew each round.
 *   group = 0   each averages with its two neighbours, all with weight 1/3 (Lian et al. 2017; with two ranks: 1/2)
 *   group = g   the ring is cut into blocks of g, each of which averages within itself. Between one round and the next
 *               the first cut moves by half a block (on the shuffled ring it need not). With g = 2 these are the odd
 *               and the even edges of the ring; when its size is odd, one rank rests, each in turn. */
typedef struct tw_schedule {
    int count; /* ranks */
    int group;
    int shuffled;
    uint64_t seed;
    int *ring;      /* the ranks, in the order of round `drawn` */
    int *place;     /* of each rank on it */
    uint64_t drawn; /* TW_NO_ROUND: no round yet */
} tw_schedule;

#define TW_NO_ROUND UINT64_MAX

tw_status tw_schedule_create(tw_schedule *schedule, int ranks, int group, int shuffled, uint64_t seed);
void tw_schedule_release(tw_schedule *schedule);

/* The most partners anybody can have. */
int tw_schedule_most(const tw_schedule *schedule);
/* Writes the partners of `rank` in that round; returns how many (0: it rests). */
int tw_schedule_partners(tw_schedule *schedule, uint64_t round, int rank, int *partners);
/* The first round in and after `round` at whose end everybody has heard, through partners of partners, what `rank` knew
 * before it: the news are played forward, so the answer is exact for every schedule. */
tw_status tw_schedule_heard(tw_schedule *schedule, uint64_t round, int rank, uint64_t *heard);

#endif
