/* thinwire_clusters.h - the mean of models that are cut differently.
 *
 * EXPERIMENTAL: it works and is tested as the rest is, and may still change with a release (docs/abi.md). */
#ifndef THINWIRE_CLUSTERS_H
#define THINWIRE_CLUSTERS_H

#include <thinwire/thinwire.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A cluster is some ranks that hold one model together: a pipeline's stages, or a group that has sharded it. Each
 * cluster has the whole model once, and cuts it as it likes. Every rank says which elements it holds, and `average`
 * makes every element the mean of the clusters' values.
 *
 *     const tw_range mine[] = {{0, 5000}, {20000, 1000}};        // of 30000 elements, what this rank holds
 *     tw_clusters_create(comm, cluster, 30000, mine, 2, &clusters);
 *     for (;;) {
 *         ... some steps of this cluster's own
 *         float *values[] = {embedding, norm};                   // where range 0 stands, and range 1
 *         tw_clusters_average(clusters, values);
 *     }
 *
 * Elements that the same ranks hold are a ring, which has one member in each cluster. Each of C members adds up a C-th
 * of its ring for the others. So a rank sends and receives 2(C-1)/C times what it holds, and every message goes
 * straight between two that hold the same elements. (Ravnest's averaging in many rings; Menon et al. 2024, arXiv
 * 2401.01728. docs/clusters.md says what differs.) */
typedef struct tw_clusters tw_clusters;

/* Elements `first` to `first + count - 1` of the model, which all clusters number alike, from 0. */
typedef struct tw_range {
    uint64_t first, count;
} tw_range;

/* A collective. `cluster` is this rank's, and clusters are numbered from 0 without a gap. `elements` is the size of the
 * whole model. The ranges are copied; a rank may have none. Each element has to be in one range of each cluster: else
 * it is TW_ERROR_ARGUMENT on all ranks, and the text names the ranks, the cluster and the elements. Then, as after any
 * TW_ERROR_ARGUMENT, the comm is as good as before. TW_ERROR_UNSUPPORTED with more than 256 ranks. */
TW_API tw_status tw_clusters_create(tw_comm *comm, int cluster, uint64_t elements, const tw_range *ranges, size_t count,
                                    tw_clusters **clusters);
/* Frees. */
TW_API void tw_clusters_destroy(tw_clusters *clusters);

/* A collective. values[i] is where range i of this rank stands, and receives the mean of the clusters:
 * (((v0 + v1) + v2) + ...) / C, in fp32, in the order of the clusters' numbers, each operation rounded. So the bits do
 * not depend on how anybody cuts, and are those of tw_comm_allreduce among C ranks with whole models, divided by C. NaN
 * and infinity go where this arithmetic takes them: whoever may have some looks before. After TW_ERROR_PEER or
 * TW_ERROR_PACKET some values may be the mean and others not, and the comm is finished. It takes up to 8 MiB a ring
 * beside the values, from create on. */
TW_API tw_status tw_clusters_average(tw_clusters *clusters, float *const *values);

#ifdef __cplusplus
}
#endif
#endif
