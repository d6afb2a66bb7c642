#include "codec_step.h"
#include "bench.h"
#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPETITIONS = 9, WARMUP = 3, SPEC_TEXT = 1200 };

typedef struct whole {
    const codec_source *source;
    tw_comm *comm;
    tw_reducer *reducer;
    size_t elements;  /* of all gradients, each begun on a cache line of its own */
    float *gradients; /* one after the other, as in a bucket */
    float *a, *b, *c; /* what the floor streams: other memory than the reducer's */
} whole;

/* The gradients of a step, written before the floor streams other memory: none is in the cache when it is timed. */
static void refill(const whole *w, size_t step)
{
    float *at = w->gradients;
    for (size_t i = 0; i < w->source->count; at += codec_source_room(&w->source->tensors[i++]))
        codec_source_copy(w->source, i, step, at);
}

/* In the order of the backward pass. */
static tw_status take_step(const whole *w, double *seconds)
{
    double start = tw_clock();
    float *at = w->gradients + w->elements;
    for (size_t i = w->source->count; i-- > 0;) {
        at -= codec_source_room(&w->source->tensors[i]);
        TW_TRY(tw_reducer_submit(w->reducer, i, at));
    }
    TW_TRY(tw_reducer_wait(w->reducer));
    *seconds = tw_clock() - start;
    return TW_OK;
}

/* Reducer and floor take turns, so that a busy neighbour slows both. */
static tw_status take_turn(const whole *w, unsigned floor_bytes, size_t step, double *streamed, double *stepped)
{
    refill(w, step);
    *streamed = bench_stream(floor_bytes, w->a, w->b, w->c, w->elements);
    return take_step(w, stepped);
}

static tw_status measure(const whole *w, unsigned floor_bytes, codec_step_figures *figures)
{
    double streamed[REPETITIONS], stepped[REPETITIONS];
    size_t warmup = w->source->steps > WARMUP ? w->source->steps : WARMUP; /* once through what was kept */
    for (size_t i = 0; i < warmup; i++) TW_TRY(take_turn(w, floor_bytes, i, streamed, stepped));
    for (size_t i = 0; i < REPETITIONS; i++) TW_TRY(take_turn(w, floor_bytes, warmup + i, &streamed[i], &stepped[i]));
    figures->floor_ms = 1e3 * bench_median(streamed, REPETITIONS);
    figures->step_ms = 1e3 * bench_median(stepped, REPETITIONS);
    return TW_OK;
}

static void add_unless_set(char spec[SPEC_TEXT], const char *key, const char *value)
{
    char first[64], later[64];
    size_t used = strlen(spec);
    snprintf(first, sizeof first, ":%s=", key);
    snprintf(later, sizeof later, ",%s=", key);
    if (strstr(spec, first) || strstr(spec, later)) return;
    snprintf(spec + used, SPEC_TEXT - used, "%c%s=%s", strchr(spec, ':') ? ',' : ':', key, value);
}

static tw_status create(whole *w, const char *spec)
{
    char text[SPEC_TEXT];
    for (size_t i = 0; i < w->source->count; i++) w->elements += codec_source_room(&w->source->tensors[i]);
    w->gradients = bench_floats(w->elements);
    w->a = bench_floats(w->elements);
    w->b = bench_floats(w->elements);
    w->c = bench_floats(w->elements);
    if (!w->gradients || !w->a || !w->b || !w->c)
        return tw_fail(TW_ERROR_MEMORY, "no memory for %zu elements; take fewer", w->elements);
    snprintf(text, sizeof text, "%s", spec);
    add_unless_set(text, "message_kb", "25600");
    add_unless_set(text, "overlap", "off");
    TW_TRY(tw_comm_create_threads(1, &w->comm));
    return tw_reducer_create(w->comm, text, w->source->tensors, w->source->count, &w->reducer);
}

static void destroy(whole *w)
{
    tw_reducer_destroy(w->reducer);
    tw_comm_destroy(w->comm);
    free(w->gradients);
    free(w->a);
    free(w->b);
    free(w->c);
}

tw_status codec_step_run(const codec_source *source, const char *spec, unsigned floor_bytes,
                         codec_step_figures *figures)
{
    whole w = {.source = source};
    tw_status status = create(&w, spec);
    if (status == TW_OK) status = measure(&w, floor_bytes, figures);
    destroy(&w);
    return status;
}
