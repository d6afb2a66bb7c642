/* gossip_registry.h - finds the gossip scheme that a spec names, and reads what the spec says of it. */
#ifndef TW_GOSSIP_REGISTRY_H
#define TW_GOSSIP_REGISTRY_H

#include "gossip.h"

/* The scheme a spec names. */
tw_status tw_gossip_find(const char *spec, const tw_gossip_ops **ops);
/* Sets the options, the scheme's and everybody's, that a spec gives. */
tw_status tw_gossip_parse(tw_gossip *gossip, const char *spec);

/* gossip_create.c: rank `rank` of `size` without the others, which can save and load what it remembers and no more. Not
 * the first of its host, it remembers nothing. */
tw_status tw_gossip_sketch(const char *spec, const tw_tensor *tensors, size_t count, int rank, int size,
                           tw_gossip **gossip);

#endif
