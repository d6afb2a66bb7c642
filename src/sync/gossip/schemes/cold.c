/* cold - compressed primal-dual descent on the ring of ranks (Zhang, You and Xie 2023; its equations are reconstructed
 * here from NIDS with innovation compression). Beside the estimates h each worker has a dual d that learns how its own
 * gradient differs from all workers', so that with a constant rate it converges to the common optimum and not near it:
 *
 *   y = x + step + d;   h += compressed(y - h);   p = gamma/2 * (mean of h - own h);   d += dual * p;   x = y + p
 *
 * The duals add up to zero over the workers. dual = 1 is NIDS. But the duals add up what the estimates say, these lag
 * behind, and where the loss is not curved nothing but the pull damps that loop: with compression that brings a share w
 * of each difference over in a step it is stable for dual < w / (1 - w), one over the mean age of an estimate in steps,
 * whatever gamma and the learning rate are (docs/gossip.md derives it).
 *
 * Duals are in units of a step: when the learning rate changes they follow in 1 / dual steps at best. The exchange
 * comes after the step, and nothing overlaps with it. */
#include "error.h"
#include "innovation.h"
#include "kernels.h"

#include <math.h>

typedef struct cold {
    tw_innovation innovation;
    double dual; /* option */
    float *duals;
} cold;

static const tw_option options[] = {
    TW_INNOVATION_OPTIONS,
    {"dual", TW_OPTION_REAL, offsetof(cold, dual), "0", 0, 1, NULL,
     "share of each pull that the duals learn from; 0: half the density"},
};

static tw_status cold_create(tw_gossip *gossip)
{
    cold *self = (cold *)gossip;
    tw_innovation *chosen = &self->innovation;
    gossip->adapt_first = 1;
    if (chosen->gamma == 0) chosen->gamma = fmin(1, 2 * chosen->density);
    chosen->gamma /= 2;
    if (self->dual == 0) self->dual = chosen->density / 2;
    TW_TRY(tw_gossip_remember(gossip, "dual", &self->duals));
    return tw_innovation_create(gossip);
}

static void cold_absorb(tw_gossip *gossip, const float *const *steps)
{
    if (steps) tw_gossip_add_steps(gossip->weights, gossip, steps);
    tw_kernels_best()->add(gossip->weights, ((cold *)gossip)->duals, gossip->elements);
}

/* The duals learn from a share of the pull. */
static void cold_apply(tw_gossip *gossip)
{
    cold *self = (cold *)gossip;
    const tw_kernels *kernels = tw_kernels_best();
    const float *pull = self->innovation.pull;
    kernels->add(gossip->weights, pull, gossip->elements);
    kernels->quantise->accumulate(self->duals, pull, gossip->elements, (float)self->dual);
}

const tw_gossip_ops tw_gossip_cold = {
    .name = "cold",
    .summary = "synchronous; compressed differences and duals: exact also when the data differ (COLD; reconstruction)",
    .struct_size = sizeof(cold),
    TW_OPTIONS(options),
    .create = cold_create,
    .start = tw_innovation_start,
    .destroy = tw_innovation_destroy,
    .exchange = tw_innovation_exchange,
    .apply = cold_apply,
    .absorb = cold_absorb,
};
