/* prague - asynchronous partial all-reduce (Luo et al. 2020): in a round the workers of a group average among
 * themselves. The static schedule: groups that follow from the round alone, so that none conflict and nobody has to
 * hand them out. */
#include "gossip.h"

typedef struct prague {
    tw_gossip gossip;
    int64_t group, seed;
    int order;
} prague;

static const tw_option options[] = {
    {"group", TW_OPTION_INTEGER, offsetof(prague, group), "4", 2, 64, NULL,
     "workers in a group; each keeps the weights of all others of its group for a moment"},
    {"order", TW_OPTION_CHOICE, offsetof(prague, order), "ring", 0, 0, "ring|random",
     "groups are neighbours on the ring, moved by half a group each round, or drawn anew"},
    {"seed", TW_OPTION_INTEGER, offsetof(prague, seed), "1", 0, 4294967295.0, NULL, "of order=random"},
};

static tw_status prague_create(tw_gossip *gossip)
{
    const prague *self = (const prague *)gossip;
    return tw_gossip_create_rounds(gossip, (int)self->group, self->order == 1, self->seed);
}

const tw_gossip_ops tw_gossip_prague = {
    .name = "prague",
    .summary = "asynchronous; averages within small groups that change every round",
    .struct_size = sizeof(prague),
    TW_OPTIONS(options),
    .create = prague_create,
};
