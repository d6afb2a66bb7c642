/* agreement.h - what the ranks tell each other before the first step of an object they share: that all of them can make
 * it, and that they make the same. Ranks with different tensors would exchange nonsense, and the rest would wait for a
 * rank that met an error. */
#ifndef TW_SYNC_AGREEMENT_H
#define TW_SYNC_AGREEMENT_H

#include "comm.h"

/* The last act of create, on every rank, also on one whose own part failed (prepared): its failure ends create on all
 * ranks. TW_ERROR_ARGUMENT if specs, tensors or releases of the library differ. `object` is "reducer" or "gossip". */
tw_status tw_agree(tw_channel *channel, const char *object, tw_status prepared, const char *spec,
                   const tw_tensor *tensors, size_t count);

#endif
