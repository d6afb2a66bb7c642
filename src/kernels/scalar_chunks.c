/* The reference of chunks.h. A NaN is above nothing, so that it is never the largest. */
#include "chunks.h"
#include "smaller.h"

#include <math.h>
#include <string.h>

static float top_of_chunk(float *v, const float *g, size_t n, float a, float b, uint32_t *position)
{
    float largest = 0;
    *position = 0;
    for (size_t i = 0; i < n; i++) {
        v[i] += a * g[i];
        float magnitude = fabsf(v[i] + b * g[i]);
        if (!(magnitude > largest)) continue;
        largest = magnitude;
        *position = (uint32_t)i;
    }
    return largest;
}

static float accumulate_top(float *v, const float *g, size_t n, float a, float b, size_t chunk, uint32_t *position)
{
    float largest = 0;
    for (size_t i = 0; i < n; i += chunk) {
        float top = top_of_chunk(v + i, g + i, tw_smaller(chunk, n - i), a, b, position++);
        if (top > largest) largest = top;
    }
    return largest;
}

static float accumulate_chunk(float *v, const float *g, size_t n, float a)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++) {
        v[i] += a * g[i];
        if (fabsf(v[i]) > largest) largest = fabsf(v[i]);
    }
    return largest;
}

static size_t list_rising(const float *v, const float *g, size_t n, float a, float largest, uint32_t first,
                          uint32_t *index, float *value)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(v[i] + a * g[i]) >= largest) || v[i] == 0) continue;
        index[count] = first + (uint32_t)i;
        value[count++] = v[i];
    }
    return count;
}

static size_t accumulate_rising(float *v, const float *g, size_t n, float a, size_t chunk, uint32_t first,
                                uint32_t *index, float *value, double *largest)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i += chunk) {
        size_t length = tw_smaller(chunk, n - i);
        float top = accumulate_chunk(v + i, g + i, length, a);
        if (!(top > 0)) continue;
        *largest += (double)top;
        count += list_rising(v + i, g + i, length, a, top, first + (uint32_t)i, index + count, value + count);
    }
    return count;
}

static void spread(float *dst, size_t begin, size_t end, const uint32_t *index, const float *value, size_t n)
{
    memset(dst + begin, 0, (end - begin) * sizeof *dst);
    for (size_t j = 0; j < n; j++) dst[index[j]] = value[j];
}

const tw_chunks_rows tw_chunks_scalar = {
    .accumulate_top = accumulate_top,
    .accumulate_rising = accumulate_rising,
    .spread = spread,
};
