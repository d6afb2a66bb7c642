#include "codec_step.h"
#include "bench.h"
#include "error.h"
#include "median.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPETITIONS = 9, WARMUP = 3, SPEC_TEXT = 1200 };

typedef struct whole {
    const codec_source *source;
    tw_comm *comm, *shared_comm;
    tw_reducer *reducer, *shared; /* shared: with several threads, or NULL */
    size_t threads;
    unsigned floor_bytes;
    size_t elements;  /* of all gradients, each begun on a cache line of its own */
    float *gradients; /* one after the other, as in a bucket */
    float *a, *b, *c; /* what the floor streams: other memory than the reducer's */
} whole;

/* The gradients of a step, written before the floor streams other memory: none is in the cache when it is timed. */
static void codec_step_refill(const whole *w, size_t step)
{
    float *at = w->gradients;
    for (size_t i = 0; i < w->source->count; at += codec_source_room(&w->source->tensors[i++]))
        codec_source_copy(w->source, i, step, at);
}

/* In the order of the backward pass. */
static tw_status take_step(const whole *w, tw_reducer *reducer, double *seconds)
{
    double start = tw_clock();
    float *at = w->gradients + w->elements;
    for (size_t i = w->source->count; i-- > 0;) {
        at -= codec_source_room(&w->source->tensors[i]);
        TW_TRY(tw_reducer_submit(reducer, i, at));
    }
    TW_TRY(tw_reducer_wait(reducer));
    *seconds = tw_clock() - start;
    return TW_OK;
}

/* What is measured, each in its turn. */
enum { FLOOR, STEP, SHARED_FLOOR, SHARED_STEP, KINDS };

static tw_status take_shared_turn(const whole *w, size_t step, double seconds[KINDS])
{
    codec_step_refill(w, step);
    seconds[SHARED_FLOOR] = bench_stream_shared(w->floor_bytes, w->a, w->b, w->c, w->elements, w->threads);
    if (seconds[SHARED_FLOOR] == 0)
        return tw_fail(TW_ERROR_SYSTEM, "the system has no thread left for --threads %zu", w->threads);
    return take_step(w, w->shared, &seconds[SHARED_STEP]);
}

/* Reducers and floors take turns, so that a busy neighbour slows all of them. */
static tw_status take_turn(const whole *w, size_t step, double seconds[KINDS])
{
    codec_step_refill(w, step);
    seconds[FLOOR] = bench_stream(w->floor_bytes, w->a, w->b, w->c, w->elements);
    TW_TRY(take_step(w, w->reducer, &seconds[STEP]));
    return w->shared ? take_shared_turn(w, step, seconds) : TW_OK;
}

static double median_ms(double turns[REPETITIONS][KINDS], int kind)
{
    double seconds[REPETITIONS];
    for (size_t i = 0; i < REPETITIONS; i++) seconds[i] = turns[i][kind];
    return 1e3 * median_of(seconds, REPETITIONS);
}

static tw_status codec_step_measure(const whole *w, codec_step_figures *figures)
{
    double turns[REPETITIONS][KINDS] = {{0}};
    size_t warmup = w->source->steps > WARMUP ? w->source->steps : WARMUP; /* once through what was kept */
    for (size_t i = 0; i < warmup; i++) TW_TRY(take_turn(w, i, turns[0]));
    for (size_t i = 0; i < REPETITIONS; i++) TW_TRY(take_turn(w, warmup + i, turns[i]));
    *figures = (codec_step_figures){.step_ms = median_ms(turns, STEP),
                                    .floor_ms = median_ms(turns, FLOOR),
                                    .shared_ms = median_ms(turns, SHARED_STEP),
                                    .shared_floor_ms = median_ms(turns, SHARED_FLOOR)};
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

static tw_status create_reducer(const whole *w, const char *spec, size_t threads, tw_comm **comm, tw_reducer **reducer)
{
    char text[SPEC_TEXT], number[24];
    snprintf(text, sizeof text, "%s", spec);
    snprintf(number, sizeof number, "%zu", threads);
    add_unless_set(text, "message_kb", "25600");
    add_unless_set(text, "overlap", threads > 1 ? "on" : "off");
    if (threads > 1) add_unless_set(text, "threads", number);
    TW_TRY(tw_comm_create_threads(1, comm));
    return tw_reducer_create(*comm, text, w->source->tensors, w->source->count, reducer);
}

static tw_status codec_step_create(whole *w, const char *spec)
{
    for (size_t i = 0; i < w->source->count; i++) w->elements += codec_source_room(&w->source->tensors[i]);
    w->gradients = bench_floats(w->elements);
    w->a = bench_floats(w->elements);
    w->b = bench_floats(w->elements);
    w->c = bench_floats(w->elements);
    if (!w->gradients || !w->a || !w->b || !w->c)
        return tw_fail(TW_ERROR_MEMORY, "no memory for %zu elements; take fewer", w->elements);
    TW_TRY(create_reducer(w, spec, 1, &w->comm, &w->reducer));
    int is_shared = w->threads > 1 && w->threads <= CODEC_REDUCER_THREADS;
    return is_shared ? create_reducer(w, spec, w->threads, &w->shared_comm, &w->shared) : TW_OK;
}

static void codec_step_destroy(whole *w)
{
    tw_reducer_destroy(w->reducer);
    tw_reducer_destroy(w->shared);
    tw_comm_destroy(w->comm);
    tw_comm_destroy(w->shared_comm);
    free(w->gradients);
    free(w->a);
    free(w->b);
    free(w->c);
}

tw_status codec_step_run(const codec_source *source, const char *spec, unsigned floor_bytes, size_t threads,
                         codec_step_figures *figures)
{
    whole w = {.source = source, .threads = threads, .floor_bytes = floor_bytes};
    tw_status status = codec_step_create(&w, spec);
    if (status == TW_OK) status = codec_step_measure(&w, figures);
    codec_step_destroy(&w);
    return status;
}
