/* What the benchmarks share: memory, the streaming passes that set the limit. */
#include "bench.h"
#include "error.h"
#include "wide.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

float *bench_floats(size_t count)
{
    enum { HUGE_PAGE = 2 << 20 };
    size_t bytes = (count * sizeof(float) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    float *block = aligned_alloc(HUGE_PAGE, bytes);
    if (!block) return NULL;
    madvise(block, bytes, MADV_HUGEPAGE);
    memset(block, 0, bytes);
    return block;
}

NN_WIDE static void copy(const float *restrict a, float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++) b[i] = a[i];
}

NN_WIDE static void add(const float *restrict a, float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++) b[i] += a[i];
}

NN_WIDE static void momentum(const float *restrict a, float *restrict b, float *restrict c, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        b[i] = 0.9f * b[i] + a[i];
        c[i] += b[i];
    }
}

/* An element, of the loop that is timed. */
static unsigned streamed_bytes(unsigned bytes_per_element)
{
    return bytes_per_element <= 8 ? 8 : bytes_per_element <= 12 ? 12 : 20;
}

double bench_stream(unsigned bytes_per_element, const float *a, float *b, float *c, size_t count)
{
    unsigned touched = streamed_bytes(bytes_per_element);
    double start = tw_clock();
    if (touched == 8)
        copy(a, b, count);
    else if (touched == 12)
        add(a, b, count);
    else
        momentum(a, b, c, count);
    return (tw_clock() - start) * bytes_per_element / touched;
}

typedef struct stretch {
    unsigned bytes_per_element;
    const float *a;
    float *b, *c;
    size_t count;
} stretch;

static void *stream_stretch(void *argument)
{
    const stretch *s = argument;
    bench_stream(s->bytes_per_element, s->a, s->b, s->c, s->count);
    return NULL;
}

double bench_stream_shared(unsigned bytes_per_element, const float *a, float *b, float *c, size_t count, size_t threads)
{
    pthread_t ids[BENCH_THREADS];
    stretch stretches[BENCH_THREADS];
    size_t started = 0, line = 16, share = (count / threads + line - 1) / line * line;
    double start = tw_clock();
    for (size_t t = 0; t < threads; t++, started++) {
        size_t first = t * share < count ? t * share : count, left = count - first;
        stretches[t] = (stretch){bytes_per_element, a + first, b + first, c + first, left < share ? left : share};
        if (pthread_create(&ids[t], NULL, stream_stretch, &stretches[t]) != 0) break;
    }
    for (size_t t = 0; t < started; t++) pthread_join(ids[t], NULL);
    double seconds = tw_clock() - start;
    return started == threads ? seconds * bytes_per_element / streamed_bytes(bytes_per_element) : 0;
}
