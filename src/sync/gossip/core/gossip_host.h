/* gossip_host.h - the hierarchical form (H-ADPSGD, Zhang et al. 2019): the workers of a host act as one. The steps of
 * all of them are averaged, and the host's first rank takes that mean to the first ranks of the other hosts, by any
 * scheme; it shows its weights to all of its host. So members have the same bits without a thought given to the order
 * in which steps and corrections meet, weights cross between two hosts once a round and not once a worker, and a scheme
 * needs to know nothing of it: to it a host is a rank.
 *
 * add is a collective of the host, after which all members have its weights; read is what that showed, and finish
 * answers the members that still add, with steps of nothing. */
#ifndef TW_SYNC_GOSSIP_HOST_H
#define TW_SYNC_GOSSIP_HOST_H

#include "gossip.h"

/* Numbers of channels a gossip has beside its own and one for each time its group can shrink: one for the members'
 * messages or the host's comm, four for the comm between hosts. */
enum { TW_MORE_CHANNELS = 5 };

/* 1 on the rank that gossips for its host, which is every rank unless hosts are asked for. */
int tw_host_is_first(const tw_gossip *gossip);
/* The option is set: takes the host's place for the rank's own. */
tw_status tw_host_prepare(tw_gossip *gossip);
/* All ranks have agreed on the gossip: makes the comms, of the host and between hosts, on which it then runs. */
tw_status tw_host_join(tw_gossip *gossip);
void tw_host_leave(tw_gossip *gossip);
/* A collective of the host: all members get what read gives on the first rank, or the failure that it has met. */
tw_status tw_host_show(tw_gossip *gossip, tw_status status);

/* A collective of the host: the first rank's list of hosts (or its failure) becomes all members' list of their ranks,
 * with room for all ranks. TW_ERROR_PACKET if it is none that could be. */
tw_status tw_host_expand(tw_gossip *gossip, tw_status status, int *list, int *count);

tw_status tw_host_read(tw_gossip *gossip, float *const *weights);
tw_status tw_host_add(tw_gossip *gossip, const float *const *steps);
tw_status tw_host_step(tw_gossip *gossip, float *const *weights);
tw_status tw_host_finish(tw_gossip *gossip, float *const *weights);

#endif
