/* adpsgd-random - asynchronous decentralised SGD on a ring that is shuffled for every round (Zhang et al. 2020), so
 * that news cross the group in a number of rounds that grows with the logarithm of its size. */
#include "gossip.h"

typedef struct adpsgd_random {
    tw_gossip gossip;
    int mixing;
    int64_t seed;
} adpsgd_random;

static const tw_option options[] = {
    {"mixing", TW_OPTION_CHOICE, offsetof(adpsgd_random, mixing), "pair", 0, 0, "pair|three",
     "average with one neighbour a round, or with both"},
    {"seed", TW_OPTION_INTEGER, offsetof(adpsgd_random, seed), "1", 0, 4294967295.0, NULL, "of the shuffles"},
};

static tw_status adpsgd_random_create(tw_gossip *gossip)
{
    const adpsgd_random *self = (const adpsgd_random *)gossip;
    return tw_gossip_create_rounds(gossip, self->mixing == 0 ? 2 : 0, 1, self->seed);
}

const tw_gossip_ops tw_gossip_adpsgd_random = {
    .name = "adpsgd-random",
    .summary = "asynchronous; averages with the neighbours on a ring shuffled anew each round",
    .struct_size = sizeof(adpsgd_random),
    TW_OPTIONS(options),
    .create = adpsgd_random_create,
};
