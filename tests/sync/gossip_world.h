/* gossip_world.h - gossips of up to 128 ranks in a world, where one thread at a time runs: what ranks write into the
 * scene they share needs no lock. Assertions are made on the test's own thread, after the run. */
#ifndef GOSSIP_WORLD_H
#define GOSSIP_WORLD_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_plugin.h>
#include <thinwire/thinwire_sim.h>

#include "support/cmocka.h"

enum { MOST_WORKERS = 128, MOST_WIDTH = 64 };

typedef struct scene scene;
struct scene {
    const char *spec;
    int workers;
    int width; /* of the only tensor; 0 is taken for MOST_WIDTH */
    double bandwidth, latency;
    int per_host;
    tw_status (*play)(scene *self, int rank, tw_gossip *gossip);
    void *context;

    tw_status status[MOST_WORKERS];
    char text[MOST_WORKERS][256];
    float at[MOST_WORKERS][MOST_WIDTH]; /* what scene_show saw last, or what play leaves here */
    int shown;
    tw_gossip_counts stats[MOST_WORKERS];
    uint64_t crossed[MOST_WORKERS]; /* bytes from host to host */
    double seconds;
};

static inline float scene_draw(uint64_t seed, int rank, int i)
{
    uint32_t words[4];
    tw_random(seed, (uint64_t)rank, (uint64_t)i, words);
    return (float)words[0] / 4294967296.0f - 0.5f;
}

static inline tw_status scene_add(tw_gossip *gossip, const float *step)
{
    return tw_gossip_add(gossip, &step);
}

static inline tw_status scene_read(scene *all, int rank, tw_gossip *gossip)
{
    float *mine = all->at[rank];
    return tw_gossip_read(gossip, &mine);
}

static inline tw_status scene_finish(scene *all, int rank, tw_gossip *gossip)
{
    float *mine = all->at[rank];
    return tw_gossip_finish(gossip, &mine);
}

/* Reads; *last becomes 1 on the rank by which all have, so that `at` is of one moment. */
static inline tw_status scene_show(scene *all, int rank, tw_gossip *gossip, int *last)
{
    tw_status status = scene_read(all, rank, gossip);
    *last = ++all->shown == all->workers;
    if (*last) all->shown = 0;
    return status;
}

static inline double scene_mean(const scene *all, int i)
{
    double sum = 0;
    for (int rank = 0; rank < all->workers; rank++) sum += all->at[rank][i];
    return sum / all->workers;
}

/* The squared distance of all from their mean. */
static inline double scene_spread(const scene *all)
{
    double sum = 0;
    for (int i = 0; i < all->width; i++) {
        double mean = scene_mean(all, i);
        for (int rank = 0; rank < all->workers; rank++) sum += (all->at[rank][i] - mean) * (all->at[rank][i] - mean);
    }
    return sum;
}

static inline void scene_act(void *context, int rank, tw_comm *comm)
{
    scene *all = context;
    tw_gossip *gossip = NULL;
    const float start[MOST_WIDTH] = {0}, *weights = start;
    tw_tensor tensor = {"weights", 1, {(size_t)all->width}};
    tw_status status = tw_gossip_create(comm, all->spec, &tensor, 1, &weights, &gossip);
    if (status == TW_OK) status = all->play(all, rank, gossip);
    all->status[rank] = status;
    if (status != TW_OK) snprintf(all->text[rank], sizeof all->text[rank], "%s", tw_last_error());
    all->stats[rank].struct_size = sizeof all->stats[rank];
    if (gossip) tw_gossip_stats(gossip, &all->stats[rank]);
    tw_gossip_destroy(gossip);
}

/* Runs a scene whose upper half is set, and returns it with its lower half; free it. */
static inline scene *scene_run_freely(scene set)
{
    tw_world *world;
    scene *all = malloc(sizeof *all);
    *all = set;
    tw_world_options options = {.struct_size = sizeof options,
                                .workers = all->workers,
                                .workers_per_host = all->per_host,
                                .bandwidth = all->bandwidth,
                                .latency = all->latency};
    if (!all->width) all->width = MOST_WIDTH;
    assert_int_equal(tw_world_create(&options, &world), TW_OK);
    if (tw_world_run(world, scene_act, all) != TW_OK) fail_msg("%s: %s", all->spec, tw_last_error());
    for (int rank = 0; rank < all->workers; rank++) all->crossed[rank] = tw_world_bytes(world, rank);
    all->seconds = tw_world_seconds(world);
    tw_world_destroy(world);
    return all;
}

/* The same; every rank has to end well. */
static inline scene *scene_run(scene set)
{
    scene *all = scene_run_freely(set);
    for (int rank = 0; rank < all->workers; rank++)
        if (all->status[rank] != TW_OK)
            fail_msg("%s, rank %d of %d: %s", all->spec, rank, all->workers, all->text[rank]);
    return all;
}

#endif
