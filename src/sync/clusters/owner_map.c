#include "owner_map.h"

#include "error.h"
#include "memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A range, and whose it is. */
typedef struct owned {
    uint64_t first, end;
    int cluster, rank;
    size_t range; /* among its rank's */
} owned;

/* ---- what was said ----------------------------------------------------------------------------------------------- */

static tw_status check_range(int rank, size_t index, const tw_range *range, uint64_t elements)
{
    if (range->count > 0 && range->count <= elements && range->first <= elements - range->count) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "range %zu of rank %d has %" PRIu64 " elements from %" PRIu64
                   " on: want at least one, and all below %" PRIu64,
                   index, rank, range->count, range->first, elements);
}

static tw_status check_holding(const tw_holding *holdings, int size, int rank)
{
    const tw_holding *one = &holdings[rank];
    if (one->cluster < 0 || one->cluster >= size)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "rank %d says that it is of cluster %" PRId64 ": %d ranks can be clusters 0 to %d", rank,
                       one->cluster, size, size - 1);
    if (one->elements == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "the model of rank %d has no elements; want at least one", rank);
    if (one->elements != holdings[0].elements)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "the model of rank %d has %" PRIu64 " elements and that of rank 0 has %" PRIu64
                       "; it has to be the same model",
                       rank, one->elements, holdings[0].elements);
    for (size_t i = 0; i < one->count; i++) TW_TRY(check_range(rank, i, &one->ranges[i], one->elements));
    return TW_OK;
}

static int compare_owned(const void *a, const void *b)
{
    const owned *one = a, *other = b;
    if (one->cluster != other->cluster) return one->cluster < other->cluster ? -1 : 1;
    if (one->first != other->first) return one->first < other->first ? -1 : 1;
    return (one->rank > other->rank) - (one->rank < other->rank);
}

/* All ranges by cluster, and then as they lie in the model. */
static tw_status list_owned(const tw_holding *holdings, int size, owned **list, size_t *count)
{
    size_t filled = 0;
    *count = 0;
    for (int rank = 0; rank < size; rank++) {
        TW_TRY(check_holding(holdings, size, rank));
        *count += holdings[rank].count;
    }
    TW_TRY(tw_allocate(*count, sizeof **list, list));
    for (int rank = 0; rank < size; rank++)
        for (size_t i = 0; i < holdings[rank].count; i++) {
            tw_range range = holdings[rank].ranges[i];
            (*list)[filled++] = (owned){range.first, range.first + range.count, (int)holdings[rank].cluster, rank, i};
        }
    qsort(*list, *count, sizeof **list, compare_owned);
    return TW_OK;
}

/* From *at on stand the ranges of a cluster: each has to begin where the one before ends. *at moves behind them. */
static tw_status check_cluster(const owned *list, size_t count, int cluster, uint64_t elements, size_t *at)
{
    uint64_t end = 0;
    for (; *at < count && list[*at].cluster == cluster; end = list[(*at)++].end) {
        const owned *one = &list[*at];
        if (one->first > end)
            return tw_fail(TW_ERROR_ARGUMENT, "no rank of cluster %d holds elements %" PRIu64 " to %" PRIu64, cluster,
                           end, one->first - 1);
        if (one->first < end)
            return tw_fail(TW_ERROR_ARGUMENT,
                           "in cluster %d rank %d and rank %d both hold element %" PRIu64
                           "; each is to be held once, and a replica is a cluster of its own",
                           cluster, one[-1].rank, one->rank, one->first);
    }
    if (end == elements) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "no rank of cluster %d holds elements %" PRIu64 " to %" PRIu64, cluster, end,
                   elements - 1);
}

/* ---- stretches and rings ----------------------------------------------------------------------------------------- */

/* Goes through the model from stretch to stretch. */
typedef struct sweep {
    const owned **at; /* in each cluster's ranges */
    int clusters;
    uint64_t first, end, elements;
} sweep;

static int sweep_next(sweep *s)
{
    s->first = s->end;
    if (s->first == s->elements) return 0;
    s->end = s->elements;
    for (int c = 0; c < s->clusters; c++) {
        if (s->at[c]->end == s->first) s->at[c]++;
        if (s->at[c]->end < s->end) s->end = s->at[c]->end;
    }
    return 1;
}

static void sweep_begin(sweep *s, const owned *list)
{
    s->first = s->end = 0;
    for (int c = 0; c < s->clusters; c++) {
        s->at[c] = list;
        while (list->end != s->elements) list++;
        list++;
    }
}

static int compare_members(const tw_stretch *one, const tw_stretch *other)
{
    for (int c = 0; c < one->clusters; c++)
        if (one->members[c] != other->members[c]) return one->members[c] < other->members[c] ? -1 : 1;
    return 0;
}

static int compare_stretches(const void *a, const void *b)
{
    const tw_stretch *one = a, *other = b;
    int members = compare_members(one, other);
    return members ? members : (one->first > other->first) - (one->first < other->first);
}

/* Those of this rank. */
static tw_status list_stretches(sweep *s, const owned *list, int rank, tw_owner_map *map, size_t *count)
{
    size_t clusters = (size_t)s->clusters, filled = 0;
    *count = 0;
    sweep_begin(s, list);
    while (sweep_next(s)) *count += s->at[map->cluster]->rank == rank;
    TW_TRY(tw_allocate(*count, sizeof *map->stretches, &map->stretches));
    TW_TRY(tw_allocate(*count, clusters * sizeof *map->members, &map->members));
    sweep_begin(s, list);
    while (sweep_next(s)) {
        const owned *own = s->at[map->cluster];
        int *members = map->members + filled * clusters;
        if (own->rank != rank) continue;
        for (size_t c = 0; c < clusters; c++) members[c] = s->at[c]->rank;
        map->stretches[filled++] = (tw_stretch){.members = members,
                                                .clusters = s->clusters,
                                                .first = s->first,
                                                .count = (size_t)(s->end - s->first),
                                                .range = own->range,
                                                .offset = (size_t)(s->first - own->first)};
    }
    qsort(map->stretches, *count, sizeof *map->stretches, compare_stretches);
    return TW_OK;
}

static tw_status list_rings(tw_owner_map *map, size_t stretches)
{
    TW_TRY(tw_allocate(stretches, sizeof *map->rings, &map->rings));
    for (size_t i = 0; i < stretches; i++) {
        tw_stretch *one = &map->stretches[i];
        if (i == 0 || compare_members(one - 1, one) != 0)
            map->rings[map->ring_count++] = (tw_ring){.members = one->members, .stretches = one};
        tw_ring *ring = &map->rings[map->ring_count - 1];
        one->at = ring->elements;
        ring->elements += one->count;
        ring->stretch_count++;
    }
    return TW_OK;
}

static int compare_visits(const void *a, const void *b)
{
    const tw_visit *one = a, *other = b;
    if (one->peer != other->peer) return one->peer < other->peer ? -1 : 1;
    return (one->ring > other->ring) - (one->ring < other->ring);
}

static tw_status list_visits(tw_owner_map *map)
{
    size_t rings = map->ring_count;
    TW_TRY(tw_allocate(rings, (size_t)map->clusters * sizeof *map->visits, &map->visits));
    for (int c = 0; c < map->clusters; c++) {
        tw_visit *visits = map->visits + (size_t)c * rings;
        for (size_t r = 0; r < rings; r++) visits[r] = (tw_visit){map->rings[r].members[c], r};
        qsort(visits, rings, sizeof *visits, compare_visits);
    }
    return TW_OK;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static tw_status make_rings(const owned *list, uint64_t elements, int rank, tw_owner_map *map)
{
    sweep s = {.clusters = map->clusters, .elements = elements};
    size_t stretches = 0;
    TW_TRY(tw_allocate((size_t)map->clusters, sizeof *s.at, &s.at));
    tw_status status = list_stretches(&s, list, rank, map, &stretches);
    tw_free(s.at);
    TW_TRY(status);
    TW_TRY(list_rings(map, stretches));
    return list_visits(map);
}

static tw_status make_map(const tw_holding *holdings, int size, int rank, owned **list, tw_owner_map *map)
{
    size_t count, at = 0;
    uint64_t elements = holdings[0].elements;
    TW_TRY(list_owned(holdings, size, list, &count));
    for (int r = 0; r < size; r++)
        if (holdings[r].cluster >= map->clusters) map->clusters = (int)holdings[r].cluster + 1;
    for (int c = 0; c < map->clusters; c++) TW_TRY(check_cluster(*list, count, c, elements, &at));
    map->cluster = (int)holdings[rank].cluster;
    return make_rings(*list, elements, rank, map);
}

tw_status tw_owner_map_make(const tw_holding *holdings, int size, int rank, tw_owner_map *map)
{
    owned *list = NULL;
    tw_status status = make_map(holdings, size, rank, &list, map);
    tw_free(list);
    return status;
}

void tw_owner_map_release(tw_owner_map *map)
{
    tw_free(map->rings);
    tw_free(map->visits);
    tw_free(map->stretches);
    tw_free(map->members);
}
