/* leftovers.h - the tensors that a scheme does not compress, as the option `leftovers` has them travel: in an
 * all-reduce of their own, or, where they are few, as the last section of each rank's packet. */
#ifndef TW_LEFTOVERS_H
#define TW_LEFTOVERS_H

#include "dense.h"
#include "packet.h"

/* Makes a tensor one of them, for a reason that its plan gives. */
void tw_leftovers_take(const tw_scheme *scheme, tw_scheme_tensor *tensor, const char *why);

tw_status tw_leftovers_create(tw_dense *leftovers, tw_scheme *scheme);

/* Packs this rank's share of the mean for an all-reduce, and accounts for it. */
void tw_leftovers_pack(tw_dense *leftovers, tw_round *round);

/* Whether they ride in the packets of a message that has packets: from counts alone, so all ranks find the same. */
int tw_leftovers_ride(const tw_dense *leftovers);
/* The most bytes that their section takes. */
size_t tw_leftovers_bound(const tw_dense *leftovers);
/* Puts this rank's share of the mean, which is finite, into its packet, and accounts for it. */
tw_status tw_leftovers_put(tw_dense *leftovers, tw_packet_writer *writer);
/* Reads the section of a rank's packet into the gradients, or, but for the first rank, adds it to them, in fp32. Behind
 * the last, tw_dense_round makes the sum what it would be after an all-reduce. */
tw_status tw_leftovers_add(tw_dense *leftovers, tw_packet_reader *reader, int is_first);

#endif
