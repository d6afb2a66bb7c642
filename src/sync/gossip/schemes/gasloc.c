/* gasloc - local steps that gossip: every so many steps each worker takes what it moved by, with an outer rate, meets
 * one other on a ring that is shuffled anew each time, and adds a momentum (2026, arXiv 2606.11081; its formula is read
 * from a public summary, not from the paper: a reconstruction):
 *
 *   y = start + outer_lr * (x - start)
 *   x = start = y + mixing * (partner's y - y) / 2 + outer_momentum * (y - last y)
 *
 * The first y of all is compared with the first weights. Then the mean over the workers walks as diloco's does with the
 * same options, whoever meets whom: what one is pulled by, the other is pulled back by. */
#include "error.h"
#include "gossip.h"

#include <string.h>

typedef struct gasloc {
    tw_gossip gossip;
    int64_t every, seed;               /* options, */
    double outer_lr, momentum, mixing; /* and these */
    uint64_t steps;
    float *start, *last;     /* the weights when the round began; the last y */
    const float *correction; /* half of the way to the partner; NULL: this worker rests */
} gasloc;

static const tw_option options[] = {
    {"every", TW_OPTION_INTEGER, offsetof(gasloc, every), "30", 1, 1000000, NULL, "steps between two exchanges"},
    {"outer_lr", TW_OPTION_REAL, offsetof(gasloc, outer_lr), "0.7", 0.01, 10, NULL,
     "the rate of what a worker moved by"},
    {"outer_momentum", TW_OPTION_REAL, offsetof(gasloc, momentum), "0.5", 0, 0.999, NULL, "and its momentum"},
    {"mixing", TW_OPTION_REAL, offsetof(gasloc, mixing), "1", 0.01, 1, NULL,
     "the share of the way that two who meet go to their mean"},
    {"seed", TW_OPTION_INTEGER, offsetof(gasloc, seed), "1", 0, 4294967295.0, NULL, "of the shuffles"},
};

static tw_status gasloc_create(tw_gossip *gossip)
{
    gasloc *self = (gasloc *)gossip;
    gossip->adapt_first = 1;
    gossip->counter = &self->steps;
    TW_TRY(tw_gossip_remember(gossip, "start", &self->start));
    TW_TRY(tw_gossip_remember(gossip, "last", &self->last));
    return tw_gossip_create_rounds(gossip, 2, 1, self->seed);
}

static void gasloc_start(tw_gossip *gossip)
{
    gasloc *self = (gasloc *)gossip;
    memcpy(self->start, gossip->weights, gossip->elements * sizeof *self->start);
    memcpy(self->last, gossip->weights, gossip->elements * sizeof *self->last);
}

static int gasloc_is_due(const tw_gossip *gossip)
{
    const gasloc *self = (const gasloc *)gossip;
    return self->steps % (uint64_t)self->every == 0;
}

static void gasloc_absorb(tw_gossip *gossip, const float *const *steps)
{
    gasloc *self = (gasloc *)gossip;
    float rate = (float)self->outer_lr, *weights = gossip->weights;
    if (steps) tw_gossip_add_steps(weights, gossip, steps);
    self->steps++;
    if (rate == 1 || !gasloc_is_due(gossip)) return;
    for (size_t i = 0; i < gossip->elements; i++) weights[i] = self->start[i] + rate * (weights[i] - self->start[i]);
}

static tw_status gasloc_exchange(tw_gossip *gossip)
{
    gasloc *self = (gasloc *)gossip;
    return tw_gossip_meet(gossip, self->steps / (uint64_t)self->every, &self->correction);
}

static void gasloc_apply(tw_gossip *gossip)
{
    gasloc *self = (gasloc *)gossip;
    const float momentum = (float)self->momentum, mixing = (float)self->mixing, *correction = self->correction;
    for (size_t i = 0; i < gossip->elements; i++) {
        float y = gossip->weights[i], pulled = correction ? y + mixing * correction[i] : y;
        gossip->weights[i] = self->start[i] = pulled + momentum * (y - self->last[i]);
        self->last[i] = y;
    }
}

const tw_gossip_ops tw_gossip_gasloc = {
    .name = "gasloc",
    .summary = "synchronous; local steps, then one neighbour on a shuffled ring, with momentum (reconstruction)",
    .struct_size = sizeof(gasloc),
    TW_OPTIONS(options),
    .create = gasloc_create,
    .start = gasloc_start,
    .exchange = gasloc_exchange,
    .apply = gasloc_apply,
    .absorb = gasloc_absorb,
    .is_due = gasloc_is_due,
};
