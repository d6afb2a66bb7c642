/* gossip_players.h - the ranks of a gossip as threads, each playing a part. What a part meets it leaves in its player;
 * assertions are made on the test's own thread. */
#ifndef GOSSIP_PLAYERS_H
#define GOSSIP_PLAYERS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_plugin.h>

#include "support/ranks.h"

enum { TENSORS = 2, FIRST = 60, SECOND = 7, ELEMENTS = FIRST + SECOND, MOST_RANKS = 16 };

static const tw_tensor table[TENSORS] = {{"weight", 2, {12, 5}}, {"bias", 1, {SECOND}}};

/* One array, cut as the table says. */
typedef struct values {
    float at[ELEMENTS];
    float *parts[TENSORS];
} values;

static inline float *const *parts_of(values *all)
{
    all->parts[0] = all->at;
    all->parts[1] = all->at + FIRST;
    return all->parts;
}

typedef struct player player;
struct player {
    int rank, size;
    const char *spec;
    tw_comm *comm;
    tw_gossip *gossip; /* a part may destroy it and write NULL */
    tw_status (*part)(player *self);
    void *shared;
    void (*wrap)(player *self); /* (optional) puts something between the rank's comm and its transport */
    double timeout;             /* 0: a minute */
    values weights;             /* the start, and what the part leaves there */
    tw_status created, status;
    char text[512];
    tw_gossip_counts stats;
};

static inline tw_status players_read(player *self)
{
    return tw_gossip_read(self->gossip, parts_of(&self->weights));
}

static inline tw_status players_add(player *self, values *steps)
{
    return tw_gossip_add(self->gossip, (const float *const *)parts_of(steps));
}

static inline tw_status players_finish(player *self)
{
    return tw_gossip_finish(self->gossip, parts_of(&self->weights));
}

static inline tw_status players_create(player *self)
{
    return tw_gossip_create(self->comm, self->spec, table, TENSORS, (const float *const *)parts_of(&self->weights),
                            &self->gossip);
}

/* Goes on as another gossip, which began elsewhere and was given what this one remembered. */
static inline tw_status players_restart(player *self)
{
    tw_state *saved = NULL;
    values other = {0};
    tw_status status = tw_state_create(&saved);
    if (status == TW_OK) status = tw_gossip_save_state(self->gossip, "g/", saved);
    tw_gossip_destroy(self->gossip);
    self->gossip = NULL;
    if (status == TW_OK)
        status = tw_gossip_create(self->comm, self->spec, table, TENSORS, (const float *const *)parts_of(&other),
                                  &self->gossip);
    if (status == TW_OK) status = tw_gossip_load_state(self->gossip, "g/", saved);
    tw_state_destroy(saved);
    return status;
}

static inline void players_play(void *players, int rank, tw_comm *comm)
{
    player *self = (player *)players + rank;
    self->rank = rank;
    self->comm = comm;
    if (self->wrap) self->wrap(self);
    tw_comm_set_timeout(comm, self->timeout > 0 ? self->timeout : 60);
    self->created = players_create(self);
    self->status = self->created == TW_OK ? self->part(self) : self->created;
    if (self->status != TW_OK) snprintf(self->text, sizeof self->text, "%s", tw_last_error());
    self->stats.struct_size = sizeof self->stats;
    if (self->gossip) tw_gossip_stats(self->gossip, &self->stats);
    tw_gossip_destroy(self->gossip);
}

/* Runs `size` players of whom everything but what is given here has been set. */
static inline void players_run(player *players, int size, const char *spec, tw_status (*part)(player *self))
{
    for (int r = 0; r < size; r++) {
        players[r].size = size;
        if (!players[r].spec) players[r].spec = spec;
        if (!players[r].part) players[r].part = part;
    }
    run_on_threads(size, players_play, players);
}

#endif
