/* agreement.h - what the ranks tell each other before the first step of an object they share: that all of them can make
 * it, and that they make the same. Ranks with different tensors would exchange nonsense, and the rest would wait for a
 * rank that met an error. */
#ifndef TW_SYNC_AGREEMENT_H
#define TW_SYNC_AGREEMENT_H

#include "comm.h"

/* The last act of create, on every rank, also on one whose own part failed (prepared): its failure ends create on all
 * ranks. TW_ERROR_ARGUMENT if specs, tensors, releases of the library or `code` differ, which stands for what comes
 * from elsewhere: tw_outside_digest of the scheme, or 0. The text says which. `object` is "reducer" or "gossip". */
tw_status tw_agree(tw_channel *channel, const char *object, tw_status prepared, const char *spec, uint32_t code,
                   const tw_tensor *tensors, size_t count);

#endif
