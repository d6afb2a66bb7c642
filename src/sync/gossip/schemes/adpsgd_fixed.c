/* adpsgd-fixed - asynchronous decentralised SGD on the ring of ranks (Lian et al. 2018; Zhang et al. 2019). In a round
 * each averages with one neighbour, with the other in the next: half the traffic of averaging with both, and two such
 * rounds mix better than two of the others. */
#include "gossip.h"

typedef struct adpsgd_fixed {
    tw_gossip gossip;
    int mixing;
} adpsgd_fixed;

static const tw_option options[] = {
    {"mixing", TW_OPTION_CHOICE, offsetof(adpsgd_fixed, mixing), "pair", 0, 0, "pair|three",
     "average with one neighbour a round, in turn, or with both"},
};

static tw_status adpsgd_fixed_create(tw_gossip *gossip)
{
    return tw_gossip_create_rounds(gossip, ((adpsgd_fixed *)gossip)->mixing == 0 ? 2 : 0, 0, 0);
}

const tw_gossip_ops tw_gossip_adpsgd_fixed = {
    .name = "adpsgd-fixed",
    .summary = "asynchronous; averages with the neighbours on a fixed ring",
    .struct_size = sizeof(adpsgd_fixed),
    TW_OPTIONS(options),
    .create = adpsgd_fixed_create,
};
