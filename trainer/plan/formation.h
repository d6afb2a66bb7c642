/* formation.h - machines of unlike memory and speed as clusters, each of which holds one model (Ravnest; Menon et al.
 * 2024, arXiv 2401.01728).
 *
 *     badness = 100 * sum over clusters of max(0, model - memory) + (longest time - shortest time)
 *     time    = sum over a cluster's machines of floor(memory / rate)
 *
 * In these words one cluster of all machines is perfect, whatever they are. So each number of clusters is answered by
 * itself, and the largest one whose clusters hold the model is taken. */
#ifndef TRAINER_FORMATION_H
#define TRAINER_FORMATION_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

enum {
    FORMATION_CLUSTERS = 5, /* at most, as in the paper */
    FORMATION_MACHINES = 1000,
    FORMATION_EXACT = 10,        /* so many machines and fewer: every way is tried */
    FORMATION_LARGEST = 10000000 /* MB, and Mbit/s */
};

typedef struct machine {
    int64_t memory; /* MB */
    int64_t rate;   /* Mbit/s */
} machine;

/* One way to form clusters. */
typedef struct formation {
    int clusters;
    int of[FORMATION_MACHINES]; /* the cluster of each machine, numbered as they come first */
    int64_t lacking;            /* MB, in all clusters together */
    int64_t apart;              /* the longest time less the shortest */
} formation;

/* The badness of a way, whose `lacking` and `apart` it fills in. A cluster without a machine lacks the model. */
int64_t formation_weigh(const machine *machines, size_t count, int64_t model, formation *way);

/* The best way with `clusters` clusters, none of them empty; of several the first when all are in order. For
 * FORMATION_EXACT machines and fewer. */
void formation_exact(const machine *machines, size_t count, int64_t model, int clusters, formation *best);

/* A good way, by the paper's genetic search: 200 ways, 500 generations, tournaments of five, one-point crossover, one
 * in a hundred mutates. The same for the same seed. */
tw_status formation_genetic(const machine *machines, size_t count, int64_t model, int clusters, uint64_t seed,
                            formation *best);

/* Each machine's share of the model, as large in its cluster as its share of the memory: whole MB, and all of a
 * cluster's together are the model. */
void formation_share(const machine *machines, size_t count, int64_t model, const formation *way, int64_t *shares);

#endif
