/* choco - CHOCO-SGD on the ring of ranks (Koloskova, Stich and Jaggi 2019): the weights follow the mean of the
 * neighbours' estimates instead of the neighbours themselves, and the estimates are kept up by compressed differences.
 * With h the estimates: x += step + gamma * (mean of h - own h), then each h += compressed(x - h); the exchange
 * overlaps with the next gradient. With a constant rate and workers whose data differ it ends in a place that depends
 * on gamma and the rate: cold does not. */
#include "innovation.h"
#include "kernels.h"

static const tw_option options[] = {
    TW_INNOVATION_OPTIONS,
};

static void choco_apply(tw_gossip *gossip)
{
    tw_kernels_best()->add(gossip->weights, ((tw_innovation *)gossip)->pull, gossip->elements);
}

const tw_gossip_ops tw_gossip_choco = {
    .name = "choco",
    .summary = "synchronous; neighbours on a fixed ring exchange compressed differences (CHOCO-SGD)",
    .struct_size = sizeof(tw_innovation),
    TW_OPTIONS(options),
    .create = tw_innovation_create,
    .start = tw_innovation_start,
    .destroy = tw_innovation_destroy,
    .remembers_exchange = 1,
    .exchange = tw_innovation_exchange,
    .apply = choco_apply,
};
