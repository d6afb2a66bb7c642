/* adpsgd-d1 - delay-by-one (Zhang et al. 2020): the mean over all workers is taken while the gradient is computed, so
 * that something comes one step late. The paper's text leaves open what. W are the workers' weights, mean(W) is their
 * mean, and G(W) are the steps of gradients at W. What is late is, with
 *
 *     mode=A   W' = mean(W) + G(W)          the others' steps: workers differ by their own last step alone
 *     mode=B   W' = mean(W) + G(W before)   the gradient, too: read gives the weights of the step before
 *     mode=C   w' = w + mean(G before)      the mean of the steps: all workers have the same weights
 *
 * All wait for the slowest in every step. */
#include "error.h"
#include "gossip.h"
#include "kernels.h"
#include "memory.h"

#include <string.h>

enum { MODE_A, MODE_B, MODE_C };

typedef struct adpsgd_d1 {
    tw_gossip gossip;
    int mode;
    float *mean; /* what the exchange brought */
    float *kept; /* mode B: the weights of the step before; mode C: the last step */
} adpsgd_d1;

static const tw_option options[] = {
    {"mode", TW_OPTION_CHOICE, offsetof(adpsgd_d1, mode), "A", 0, 0, "A|B|C",
     "what is one step late: the others' steps, the own gradient too, or all steps alike"},
};

static tw_status adpsgd_d1_create(tw_gossip *gossip)
{
    adpsgd_d1 *self = (adpsgd_d1 *)gossip;
    TW_TRY(tw_allocate(gossip->elements, sizeof *self->mean, &self->mean));
    if (self->mode == MODE_A) return TW_OK;
    TW_TRY(tw_gossip_remember(gossip, self->mode == MODE_B ? "previous" : "pending", &self->kept));
    if (self->mode == MODE_B) gossip->shown = self->kept;
    return TW_OK;
}

static void adpsgd_d1_destroy(tw_gossip *gossip)
{
    tw_free(((adpsgd_d1 *)gossip)->mean);
}

static size_t bytes_of(const tw_gossip *gossip)
{
    return gossip->elements * sizeof *gossip->weights;
}

/* There is no step before the first. */
static void adpsgd_d1_start(tw_gossip *gossip)
{
    adpsgd_d1 *self = (adpsgd_d1 *)gossip;
    if (self->mode == MODE_B) memcpy(self->kept, gossip->weights, bytes_of(gossip));
}

static tw_status adpsgd_d1_exchange(tw_gossip *gossip)
{
    adpsgd_d1 *self = (adpsgd_d1 *)gossip;
    memcpy(self->mean, self->mode == MODE_C ? self->kept : gossip->weights, bytes_of(gossip));
    return tw_gossip_mean(gossip, self->mean);
}

static void adpsgd_d1_apply(tw_gossip *gossip)
{
    adpsgd_d1 *self = (adpsgd_d1 *)gossip;
    if (self->mode == MODE_C) {
        tw_kernels_best()->add(gossip->weights, self->mean, gossip->elements);
        memset(self->kept, 0, bytes_of(gossip));
        return;
    }
    if (self->mode == MODE_B) memcpy(self->kept, gossip->weights, bytes_of(gossip));
    memcpy(gossip->weights, self->mean, bytes_of(gossip));
}

static void adpsgd_d1_absorb(tw_gossip *gossip, const float *const *steps)
{
    adpsgd_d1 *self = (adpsgd_d1 *)gossip;
    if (steps) tw_gossip_add_steps(self->mode == MODE_C ? self->kept : gossip->weights, gossip, steps);
}

const tw_gossip_ops tw_gossip_adpsgd_d1 = {
    .name = "adpsgd-d1",
    .summary = "synchronous; averages all workers while the next gradient is computed (delay by one)",
    .struct_size = sizeof(adpsgd_d1),
    TW_OPTIONS(options),
    .create = adpsgd_d1_create,
    .start = adpsgd_d1_start,
    .destroy = adpsgd_d1_destroy,
    .exchange = adpsgd_d1_exchange,
    .apply = adpsgd_d1_apply,
    .absorb = adpsgd_d1_absorb,
};
