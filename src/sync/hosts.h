/* hosts.h - ranks in a row as hosts, for what takes per_host=G: 0 .. G-1 are one, G .. 2G-1 the next. The first rank of
 * each speaks for it to the others. */
#ifndef TW_SYNC_HOSTS_H
#define TW_SYNC_HOSTS_H

#include "comm.h"

/* TW_ERROR_SPEC unless every host has as many of the workers. */
tw_status tw_hosts_check(int workers, int per_host);

/* The comm of the members of this rank's host, and, for its first rank only, the comm of all hosts' first ranks. Each
 * takes the numbers of `whole` from `number` on (see subset.h). */
tw_status tw_hosts_create_members(tw_comm *whole, int per_host, unsigned number, tw_comm **members);
tw_status tw_hosts_create_firsts(tw_comm *whole, int per_host, unsigned number, tw_comm **firsts);

#endif
