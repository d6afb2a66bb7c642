/* delivered.h - the packets that a round brought, one a rank. */
#ifndef TW_DELIVERED_H
#define TW_DELIVERED_H

#include "packet.h"
#include "scheme.h"

/* Opens `count` packets of the step under way; sets skipped if one says that its gradient was not finite. */
tw_status tw_delivered_open(tw_scheme *scheme, tw_packet_reader *readers, const void *const *packets,
                            const size_t *sizes, int count);
/* Refuses what was left over in any of them. */
tw_status tw_delivered_close(tw_packet_reader *readers, int count);

/* Passes on what came of reading a packet, and names its sender if it was refused. */
tw_status tw_delivered_blame(int rank, tw_status status);

#endif
