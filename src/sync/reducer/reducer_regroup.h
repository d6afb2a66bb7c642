/* reducer_regroup.h - the scheme that a reducer of another number of workers goes on with. */
#ifndef TW_REDUCER_REGROUP_H
#define TW_REDUCER_REGROUP_H

#include "regroup.h"

/* How many workers of a reducer with that spec act as one. */
tw_status tw_reducer_read_per_host(const char *spec, int *per_host);

/* `to` counts such hosts, and `source` workers. */
tw_status tw_reducer_regroup_hosts(const char *spec, const tw_tensor *tensors, size_t count, tw_regrouping to,
                                   int per_host, tw_state_source source, void *context, const char *prefix,
                                   tw_scheme **scheme);

#endif
