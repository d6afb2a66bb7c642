#include "aligned.h"

#include "kernels.h"
#include "memory.h"

#include <math.h>

enum { BLOCK = 1024 }; /* values converted at a time: they stay in the first-level cache */

tw_status tw_aligned_create(tw_aligned *aligned, int choice, int size, size_t count)
{
    tw_dtype dtype = tw_dense_dtype(choice);
    *aligned = (tw_aligned){.dtype = dtype, .largest = tw_dense_largest_share(dtype, size), .count = count};
    return tw_allocate(count, tw_dense_width(dtype), &aligned->values);
}

void tw_aligned_destroy(tw_aligned *aligned)
{
    tw_free(aligned->values);
}

size_t tw_aligned_bytes(const tw_aligned *aligned)
{
    return aligned->count * tw_dense_width(aligned->dtype);
}

void tw_aligned_put(tw_aligned *aligned, size_t at, float *value, size_t n)
{
    float largest = aligned->largest;
    for (size_t j = 0; j < n; j++) {
        float x = value[j];
        value[j] = x > largest ? largest : x < -largest ? -largest : x;
    }
    tw_dense_put(aligned->dtype, aligned->values, at, value, n);
    tw_dense_get(aligned->dtype, aligned->values, at, value, n);
}

void tw_aligned_start(tw_aligned *aligned, int finite, tw_round *round)
{
    static const float nan = NAN;
    if (!finite) tw_dense_put(aligned->dtype, aligned->values, 0, &nan, 1);
    round->kind = TW_ROUND_ALLREDUCE;
    round->values = aligned->values;
    round->count = aligned->count;
    round->dtype = aligned->dtype;
}

int tw_aligned_spread(const tw_aligned *aligned, size_t at, float scale, tw_aligned_tensor t)
{
    const tw_kernels *kernels = tw_kernels_best();
    const tw_chunks_rows *rows = t.count < TW_PAST_CACHE ? &tw_chunks_scalar : kernels->chunks;
    float sum[BLOCK];
    int finite = 1;
    for (size_t first = 0, begin = 0, n; begin < t.count; first += n) {
        n = t.n - first < BLOCK ? t.n - first : BLOCK;
        size_t end = first + n < t.n ? t.index[first + n] : t.count;
        tw_dense_get(aligned->dtype, aligned->values, at + first, sum, n);
        kernels->scale(sum, scale, n);
        finite &= kernels->all_finite(sum, n);
        rows->spread(t.dst, begin, end, t.index + first, sum, n);
        begin = end;
    }
    return finite;
}
