/* gossip_pass.h - how the worker and its communication thread work on the same weights at the same time: by blocks.
 *
 * Passes are in the order in which they begin, and each goes over the elements from the first to the last. None takes a
 * block that the one before it has not left. So a pass sees all that those before it did, and nothing of those behind
 * it, as if each had been done in one moment, though they follow one another at the distance of a block and the lock is
 * held between blocks only. Nobody waits within a block. */
#ifndef TW_SYNC_GOSSIP_PASS_H
#define TW_SYNC_GOSSIP_PASS_H

#include "gossip.h"

/* Zeroed, it waits for nobody and nobody for it. */
typedef struct tw_pass {
    struct tw_pass *ahead, *behind; /* of those under way; NULL: none */
    size_t passed;                  /* elements it will not come back to, */
    size_t taken;                   /* and those it has gone over when it is done with its block */
} tw_pass;

/* With the lock held; from here to the pass's end the lock is the caller's only within the calls below. */
void tw_pass_begin(tw_gossip *gossip, tw_pass *pass);
/* Leaves the block before and takes the next one, as soon as it is free: the elements from *start on, as many as are
 * returned. 0 when none is left: that ends the pass. */
size_t tw_pass_next(tw_gossip *gossip, tw_pass *pass, size_t *start);
/* With the lock held: waits until nobody is ahead. Then all elements are the caller's, until it breaks the pass. */
void tw_pass_alone(tw_gossip *gossip, const tw_pass *pass);
/* Ends a pass before its end. */
void tw_pass_break(tw_gossip *gossip, tw_pass *pass);

/* A place in the table of tensors, for going over arrays of one tensor each beside one of all; begins as zeros. */
typedef struct tw_place {
    size_t tensor, at; /* the element in it */
} tw_place;

/* Elements from the place on, `most` at most, that lie in one tensor: place->tensor, from place->at on. */
size_t tw_place_here(const tw_gossip *gossip, tw_place *place, size_t most);

#endif
