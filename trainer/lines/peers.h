/* peers.h - the lines between all members of a group, measured pair by pair. */
#ifndef TRAINER_PEERS_H
#define TRAINER_PEERS_H

#include "link.h"

enum { PEERS_MOST = 64, PEERS_HOST_BYTES = 64 };

/* The whole of it, the same on every rank. */
typedef struct peers_report {
    int size;
    char transport[32];
    char hosts[PEERS_MOST][PEERS_HOST_BYTES];   /* where each rank runs */
    link_figures links[PEERS_MOST][PEERS_MOST]; /* [from][to] */
} peers_report;

typedef struct peers_settings {
    double timeout; /* seconds that a rank may be silent */
    double
        seconds; /* that each timing of a rate shall take; a round takes 8.5 times that, a little more on slow lines */
    const char *counters; /* INTERFACE_COUNTERS */
} peers_settings;

/* A collective: every rank of the group, 2 to PEERS_MOST of them, calls it with the same settings. It takes N-1 rounds
 * (N where N is odd) of pairs that have nothing to do with one another. Where it fails, the comm has been left, so that
 * nobody waits for this rank: destroy it. */
tw_status peers_measure(tw_comm *comm, const peers_settings *settings, peers_report *report);

/* The rank that `rank` of `size` meets in this round; -1: none. */
int peers_partner(int rank, int size, int round);
int peers_rounds(int size);

#endif
