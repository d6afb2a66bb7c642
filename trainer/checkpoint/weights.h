/* weights.h - the weights among what a checkpoint's model file holds, and what adapters add to them. */
#ifndef TRAINER_WEIGHTS_H
#define TRAINER_WEIGHTS_H

#include <stdbool.h>
#include <thinwire/thinwire.h>

/* What a checkpoint has text of under the first key is adapters. The texts are the path, the checksum and the network
 * of the weights that they were trained beside. */
#define BASE "base"
#define BASE_SUM "base checksum"
#define BASE_NETWORK "base network"

/* Whether a tensor is a weight of the network: a checkpoint has its optimiser's tensors, too. */
bool weights_include(const tw_state_entry *entry);
bool weights_find(const tw_state *state, const char *name, tw_state_entry *entry);

/* How many fp32 values a file's tensors have: a network is not made larger than that, since a small file can say much.
 */
tw_status weights_elements(const tw_state *state, size_t *elements);

/* TW_ERROR_STATE: that is not the checksum that a checkpoint's adapters name. */
tw_status weights_check_sum(uint32_t sum, const char *wanted);
/* The same of what no tensor has: the base of the positions, say. The first versions did not keep it. */
tw_status weights_check_network(const tw_state *state, const char *wanted);

/* The weights with what a checkpoint's adapters add to them, W + scale * B A, and with that checkpoint's texts: its
 * network as one that has no adapters. Neither file is trusted. */
tw_status weights_merge(const tw_state *adapters, const tw_state *weights, tw_state **merged);

#endif
