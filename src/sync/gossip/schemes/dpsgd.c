/* dpsgd - synchronous decentralised SGD on the ring of ranks (Lian et al. 2017): w_i becomes the mean of w_(i-1), w_i
 * and w_(i+1), plus the step. The step comes from a gradient at w_i, so that the exchange overlaps with it (order=awc,
 * adapt with combine); it is stable up to a curvature times learning rate of 1 + the mixing's least eigenvalue, 2/3 on
 * an even ring. order=atc, adapt then combine, averages w_i with the step in it: stable up to 2, and nothing overlaps.
 */
#include "gossip.h"
#include "kernels.h"

typedef struct dpsgd {
    tw_gossip gossip;
    int order;
    uint64_t round;
    const float *correction; /* of the exchange that is done; NULL: none */
} dpsgd;

static const tw_option options[] = {
    {"order", TW_OPTION_CHOICE, offsetof(dpsgd, order), "awc", 0, 0, "awc|atc",
     "exchange the weights before the step, while the gradient is computed, or after it"},
};

static tw_status dpsgd_create(tw_gossip *gossip)
{
    gossip->adapt_first = ((dpsgd *)gossip)->order == 1;
    return tw_gossip_create_rounds(gossip, 0, 0, 0);
}

static tw_status dpsgd_exchange(tw_gossip *gossip)
{
    dpsgd *self = (dpsgd *)gossip;
    return tw_gossip_meet(gossip, self->round++, &self->correction);
}

static void dpsgd_apply(tw_gossip *gossip)
{
    const float *correction = ((dpsgd *)gossip)->correction;
    if (correction) tw_kernels_best()->add(gossip->weights, correction, gossip->elements);
}

const tw_gossip_ops tw_gossip_dpsgd = {
    .name = "dpsgd",
    .summary = "synchronous; averages with both neighbours on a fixed ring",
    .struct_size = sizeof(dpsgd),
    TW_OPTIONS(options),
    .create = dpsgd_create,
    .exchange = dpsgd_exchange,
    .apply = dpsgd_apply,
};
