/* Ranks as workers of a virtual world. */
enum { MOST = 9 };
#include "group_local.h"

#include <thinwire/thinwire_sim.h>

#include "channel.h"

typedef struct play {
    rank_program program;
    const void *context;
    int size, present, meetings;
    tw_mutex mutex;
    tw_condition changed;
} play;

static play now;

static void remain(void *self)
{
    (void)self;
}

/* The program destroys its comm, and so does the world: the program is given one of its own, and with it the place. */
static void act(void *context, int rank, tw_comm *comm)
{
    tw_comm *own = NULL;
    (void)context;
    CHECK(tw_comm_create_custom(&comm->ops, comm->self, rank, now.size, &own) == TW_OK);
    comm->ops.destroy = remain;
    now.program(own, now.context);
}

void group_run(int size, rank_program program, const void *context)
{
    tw_world_options options = {.struct_size = sizeof options, .workers = size, .bandwidth = 1e6, .latency = 1e-3};
    tw_world *world = NULL;
    now = (play){.program = program, .context = context, .size = size};
    CHECK(tw_mutex_create(&now.mutex) == TW_OK && tw_condition_create(&now.changed) == TW_OK);
    CHECK(tw_world_create(&options, &world) == TW_OK);
    CHECK(tw_world_run(world, act, NULL) == TW_OK);
    tw_world_destroy(world);
    tw_condition_destroy(&now.changed);
    tw_mutex_destroy(&now.mutex);
}

void group_meet(void)
{
    tw_mutex_lock(&now.mutex);
    int meeting = now.meetings;
    if (++now.present == now.size) {
        now.present = 0;
        now.meetings++;
        tw_condition_wake_all(&now.changed);
    }
    while (meeting == now.meetings) tw_condition_wait(&now.changed, &now.mutex);
    tw_mutex_unlock(&now.mutex);
}
