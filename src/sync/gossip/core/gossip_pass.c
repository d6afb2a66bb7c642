#include "gossip_pass.h"
#include "smaller.h"

/* Bytes enough that handing a block over costs little beside working on it, and few enough that nobody waits long. */
enum { BLOCK = 64 << 10 /* elements */ };

void tw_pass_begin(tw_gossip *gossip, tw_pass *pass)
{
    *pass = (tw_pass){.ahead = gossip->last_pass};
    if (pass->ahead) pass->ahead->behind = pass;
    gossip->last_pass = pass;
}

/* With the lock held. */
static void take_out(tw_gossip *gossip, tw_pass *pass)
{
    if (pass->ahead) pass->ahead->behind = pass->behind;
    if (pass->behind) pass->behind->ahead = pass->ahead;
    if (gossip->last_pass == pass) gossip->last_pass = pass->ahead;
}

size_t tw_pass_next(tw_gossip *gossip, tw_pass *pass, size_t *start)
{
    tw_mutex_lock(&gossip->lock);
    *start = pass->passed = pass->taken;
    if (pass->behind) tw_condition_wake_all(&gossip->changed);
    size_t count = tw_smaller(gossip->elements - pass->passed, BLOCK);
    pass->taken += count;
    if (count == 0) take_out(gossip, pass);
    while (count && pass->ahead && pass->ahead->passed < pass->taken)
        tw_condition_wait(&gossip->changed, &gossip->lock);
    tw_mutex_unlock(&gossip->lock);
    return count;
}

void tw_pass_alone(tw_gossip *gossip, const tw_pass *pass)
{
    while (pass->ahead) tw_condition_wait(&gossip->changed, &gossip->lock);
}

void tw_pass_break(tw_gossip *gossip, tw_pass *pass)
{
    tw_mutex_lock(&gossip->lock);
    take_out(gossip, pass);
    tw_condition_wake_all(&gossip->changed);
    tw_mutex_unlock(&gossip->lock);
}

size_t tw_place_here(const tw_gossip *gossip, tw_place *place, size_t most)
{
    while (place->at == tw_tensor_count(&gossip->tensors[place->tensor])) *place = (tw_place){place->tensor + 1, 0};
    return tw_smaller(tw_tensor_count(&gossip->tensors[place->tensor]) - place->at, most);
}
