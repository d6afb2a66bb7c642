/* owner_map.h - who holds what of a model that several clusters have, each cut in its own way, and what follows for one
 * rank: the rings it is in. */
#ifndef TW_SYNC_OWNER_MAP_H
#define TW_SYNC_OWNER_MAP_H

#include <thinwire/thinwire_clusters.h>

/* What a rank has said. */
typedef struct tw_holding {
    int64_t cluster;
    uint64_t elements; /* of the whole model */
    const tw_range *ranges;
    size_t count;
} tw_holding;

/* Elements in a row with one owner in each cluster, this rank among them. */
typedef struct tw_stretch {
    const int *members; /* the owners, one a cluster */
    int clusters;
    uint64_t first;       /* in the model */
    size_t at, count;     /* in the ring */
    size_t range, offset; /* where they stand here */
} tw_stretch;

/* All stretches with the same owners, one behind the other. */
typedef struct tw_ring {
    const int *members;
    const tw_stretch *stretches;
    size_t stretch_count, elements;
} tw_ring;

/* A ring, as it stands in a list of those that are shared with a cluster's ranks, in the order of the ranks. */
typedef struct tw_visit {
    int peer;
    size_t ring;
} tw_visit;

/* One rank's rings, in an order on which those that share some agree. */
typedef struct tw_owner_map {
    int clusters, cluster; /* how many, and this rank's */
    size_t ring_count;
    tw_ring *rings;
    tw_visit *visits; /* for each cluster its list, this rank's own included */
    tw_stretch *stretches;
    int *members;
} tw_owner_map;

/* Of what all of `size` ranks have said, which is looked through, what follows for `rank`. TW_ERROR_ARGUMENT, the same
 * text for every rank, unless each cluster holds each element once. `map` is zero, and to be released whatever happens.
 */
tw_status tw_owner_map_make(const tw_holding *holdings, int size, int rank, tw_owner_map *map);
void tw_owner_map_release(tw_owner_map *map);

#endif
