#include "codec_run.h"
#include "bench.h"
#include "error.h"
#include "median.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <thinwire/thinwire_by_hand.h>

enum { REPETITIONS = 9, WARMUP = 3 };

/* ---- one step of one tensor ---- */

typedef struct part {
    size_t tensor; /* of the source */
    float *gradient;
    tw_scheme *scheme;
} part;

/* A group of one hears itself: a sum is its own values, which stand there, and every packet its own. */
typedef struct echo {
    const void *packet;
    size_t size;
} echo;

static void answer(tw_round *round, echo *e)
{
    if (round->kind == TW_ROUND_ALLTOALL)
        *e = (echo){round->packets[0], round->sizes[0]};
    else
        *e = (echo){round->data, round->size};
    round->packets = &e->packet;
    round->sizes = &e->size;
}

/* Seconds of one turn: first is part of encode. */
typedef struct turn {
    double first, encode, decode, stream;
} turn;

/* Adds a step's seconds: up to its first round, up to the answer to its last, and from there to the mean. The norm is
 * given: who looks at the gradient, and when, is part of a reducer's step (codec_step.c). */
static tw_status codec_run_step(part *p, turn *sum)
{
    tw_round round = {0};
    echo e;
    double start = tw_clock(), answered = 0, first;
    TW_TRY(tw_scheme_begin(p->scheme, &p->gradient, 1));
    TW_TRY(tw_scheme_next(p->scheme, &round));
    first = tw_clock();
    while (round.kind != TW_ROUND_DONE) {
        answered = tw_clock();
        answer(&round, &e);
        TW_TRY(tw_scheme_next(p->scheme, &round));
    }
    double end = tw_clock();
    if (answered == 0) answered = end; /* nothing was exchanged */
    sum->first += first - start;
    sum->encode += answered - start;
    sum->decode += end - answered;
    return TW_OK;
}

/* ---- one thread's share ---- */

typedef struct share {
    const codec_source *source;
    part *parts;
    size_t count;    /* of parts */
    size_t elements; /* of all of them, each begun on a cache line of its own */
    float *gradient, *b, *c;
    unsigned floor_bytes;
    size_t step;
    turn last;
    tw_status status;
    char text[512]; /* of a failure: tw_last_error() is the thread's own */
} share;

static void codec_run_refill(share *s)
{
    for (size_t i = 0; i < s->count; i++)
        codec_source_copy(s->source, s->parts[i].tensor, s->step, s->parts[i].gradient);
}

/* Scheme and floor take turns, so that a busy neighbour slows both. */
static tw_status take_turn(share *s)
{
    s->last = (turn){0};
    codec_run_refill(s);
    for (size_t i = 0; i < s->count; i++) TW_TRY(codec_run_step(&s->parts[i], &s->last));
    codec_run_refill(s);
    s->last.stream = bench_stream(s->floor_bytes, s->gradient, s->b, s->c, s->elements);
    s->step++;
    return TW_OK;
}

static void *run_share(void *argument)
{
    share *s = argument;
    s->status = take_turn(s);
    if (s->status != TW_OK) snprintf(s->text, sizeof s->text, "%s", tw_last_error());
    return NULL;
}

static tw_status run_shares(share *shares, size_t count)
{
    pthread_t ids[CODEC_THREADS];
    size_t started = 1;
    while (started < count && pthread_create(&ids[started], NULL, run_share, &shares[started]) == 0) started++;
    run_share(&shares[0]);
    for (size_t t = 1; t < started; t++) pthread_join(ids[t], NULL);
    if (started < count) return tw_fail(TW_ERROR_SYSTEM, "the system has no thread left for --threads %zu", count);
    for (size_t t = 0; t < count; t++)
        if (shares[t].status != TW_OK) return tw_fail(shares[t].status, "%s", shares[t].text);
    return TW_OK;
}

/* ---- sharing out ---- */

static share *lightest(share *shares, size_t count)
{
    share *least = &shares[0];
    for (size_t t = 1; t < count; t++)
        if (shares[t].elements < least->elements) least = &shares[t];
    return least;
}

static tw_status share_out(const codec_source *source, share *shares, size_t count)
{
    for (size_t t = 0; t < count; t++) {
        shares[t].parts = calloc(source->count, sizeof *shares[t].parts);
        if (!shares[t].parts) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu tensors", source->count);
    }
    for (size_t i = 0; i < source->count; i++) {
        share *s = lightest(shares, count);
        s->parts[s->count++].tensor = i;
        s->elements += codec_source_room(&source->tensors[i]);
    }
    return TW_OK;
}

static tw_status create_share(share *s, const char *spec)
{
    s->gradient = bench_floats(s->elements);
    s->b = bench_floats(s->elements);
    s->c = bench_floats(s->elements);
    if (!s->gradient || !s->b || !s->c)
        return tw_fail(TW_ERROR_MEMORY, "no memory for %zu elements; take fewer", s->elements);
    float *gradient = s->gradient;
    for (size_t i = 0; i < s->count; i++) {
        const tw_tensor *tensor = &s->source->tensors[s->parts[i].tensor];
        s->parts[i].gradient = gradient;
        gradient += codec_source_room(tensor);
        TW_TRY(tw_scheme_create(spec, tensor, 1, 0, 1, &s->parts[i].scheme));
    }
    return TW_OK;
}

static void destroy_share(share *s)
{
    for (size_t i = 0; i < s->count; i++) tw_scheme_destroy(s->parts[i].scheme);
    free(s->parts);
    free(s->gradient);
    free(s->b);
    free(s->c);
}

/* ---- figures ---- */

/* log2 of n choose k: what it takes to say which k of n elements, if any k are as likely. */
static double choice_bits(double n, double k)
{
    return k < n ? (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2) : 0;
}

static tw_status add_step(const share *s, codec_figures *sum)
{
    for (size_t i = 0; i < s->count; i++) {
        tw_cost cost = {.struct_size = sizeof cost};
        TW_TRY(tw_scheme_cost(s->parts[i].scheme, &cost));
        double n = (double)tw_tensor_count(&s->source->tensors[s->parts[i].tensor]), k = (double)cost.elements_sent;
        sum->message_bytes += (double)(cost.packet_bytes + cost.exact_bytes);
        sum->exact_bytes += (double)cost.exact_bytes;
        sum->index_bytes += (double)cost.index_bytes;
        sum->elements_sent += k;
        sum->bound_bits += choice_bits(n, k);
    }
    return TW_OK;
}

static void divide(codec_figures *sum, double steps)
{
    sum->message_bytes /= steps;
    sum->exact_bytes /= steps;
    sum->index_bytes /= steps;
    sum->elements_sent /= steps;
    sum->bound_bits /= steps;
}

static turn slowest(const share *shares, size_t count)
{
    turn most = {0};
    for (size_t t = 0; t < count; t++) {
        most.first = fmax(most.first, shares[t].last.first);
        most.encode = fmax(most.encode, shares[t].last.encode);
        most.decode = fmax(most.decode, shares[t].last.decode);
        most.stream = fmax(most.stream, shares[t].last.stream);
    }
    return most;
}

static tw_status codec_run_measure(share *shares, size_t count, codec_figures *out)
{
    double first[REPETITIONS], encoded[REPETITIONS], decoded[REPETITIONS], streamed[REPETITIONS];
    size_t before =
        shares[0].source->steps > WARMUP ? shares[0].source->steps : WARMUP; /* once through what was kept */
    for (size_t i = 0; i < before; i++) TW_TRY(run_shares(shares, count));
    for (size_t i = 0; i < REPETITIONS; i++) {
        TW_TRY(run_shares(shares, count));
        turn most = slowest(shares, count);
        first[i] = most.first;
        encoded[i] = most.encode;
        decoded[i] = most.decode;
        streamed[i] = most.stream;
        for (size_t t = 0; t < count; t++) TW_TRY(add_step(&shares[t], out));
    }
    divide(out, REPETITIONS);
    out->first_ms = 1e3 * median_of(first, REPETITIONS);
    out->encode_ms = 1e3 * median_of(encoded, REPETITIONS);
    out->decode_ms = 1e3 * median_of(decoded, REPETITIONS);
    out->floor_ms = 1e3 * median_of(streamed, REPETITIONS);
    return TW_OK;
}

tw_status codec_run(const codec_source *source, const char *spec, unsigned floor_bytes, size_t threads,
                    codec_figures *figures)
{
    share shares[CODEC_THREADS] = {0};
    if (threads < 1 || threads > source->count || threads > CODEC_THREADS)
        return tw_fail(TW_ERROR_ARGUMENT, "--threads %zu: there are %zu tensors to share out, and %d threads at most",
                       threads, source->count, CODEC_THREADS);
    for (size_t t = 0; t < threads; t++) shares[t] = (share){.source = source, .floor_bytes = floor_bytes};
    *figures = (codec_figures){0};
    tw_status status = share_out(source, shares, threads);
    for (size_t t = 0; t < threads && status == TW_OK; t++) status = create_share(&shares[t], spec);
    if (status == TW_OK) status = codec_run_measure(shares, threads, figures);
    for (size_t t = 0; t < threads; t++) destroy_share(&shares[t]);
    return status;
}
