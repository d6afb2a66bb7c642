/* cold - compressed exact diffusion on the ring of ranks (Zhang, You and Xie 2023; its equations are reconstructed here
 * from NIDS with innovation compression). Beside the estimates h each worker has a dual d that learns how its own
 * gradient differs from all workers', so that with a constant rate it converges to the common optimum and not near it:
 *
 *   y = x + step - d;   h += compressed(y - h);   p = gamma/2 * (mean of h - own h);   d -= p;   x = y + p
 *
 * The duals add up to zero over the workers. They are kept in units of a step: a change of the learning rate disturbs
 * them for a while. The exchange comes after the step, and nothing overlaps with it. */
#include "error.h"
#include "innovation.h"
#include "kernels.h"

typedef struct cold {
    tw_gossip gossip;
    tw_innovation innovation;
    float *dual;
} cold;

static const tw_option options[] = {TW_INNOVATION_OPTIONS(cold)};

static tw_status create(tw_gossip *gossip)
{
    cold *self = (cold *)gossip;
    gossip->adapt_first = 1;
    TW_TRY(tw_gossip_remember(gossip, "dual", &self->dual));
    TW_TRY(tw_innovation_create(&self->innovation, gossip));
    self->innovation.options.gamma /= 2;
    return TW_OK;
}

static void start(tw_gossip *gossip)
{
    tw_innovation_start(&((cold *)gossip)->innovation);
}

static void destroy(tw_gossip *gossip)
{
    tw_innovation_destroy(&((cold *)gossip)->innovation);
}

static tw_status exchange(tw_gossip *gossip)
{
    return tw_innovation_exchange(&((cold *)gossip)->innovation);
}

static void subtract(float *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] -= src[i];
}

static void absorb(tw_gossip *gossip, const float *const *steps)
{
    if (steps) tw_gossip_add_steps(gossip->weights, gossip, steps);
    subtract(gossip->weights, ((cold *)gossip)->dual, gossip->elements);
}

static void settle(tw_gossip *gossip)
{
    cold *self = (cold *)gossip;
    tw_kernels_best()->add(gossip->weights, self->innovation.pull, gossip->elements);
    subtract(self->dual, self->innovation.pull, gossip->elements);
}

const tw_gossip_ops tw_gossip_cold = {
    .name = "cold",
    .summary = "synchronous; compressed differences and duals: exact also when the data differ (COLD; reconstruction)",
    .struct_size = sizeof(cold),
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .create = create,
    .start = start,
    .destroy = destroy,
    .exchange = exchange,
    .settle = settle,
    .absorb = absorb,
};
