/* thinwire bench codec: what one step of a scheme costs, beside the least it could. */
#include "bench.h"
#include "commands.h"
#include "error.h"
#include "json_file.h"
#include "launch.h"
#include "schemes.h"

#include <cJSON.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPETITIONS = 9, WARMUP = 3, MAX_THREADS = 64 };

typedef struct codec_settings {
    char *codec, *json;
    long count, threads;
    double density;
} codec_settings;

static const option_row rows[] = {
    {.help = "What to measure"},
    {"codec", "SPEC", OPTION_TEXT, offsetof(codec_settings, codec), "all", 0, 0,
     .help = "a scheme with its options, or all; its warm-up is left out unless given"},
    {"count", "N", OPTION_INTEGER, offsetof(codec_settings, count), "25600000", 1, 2e9,
     .help = "elements of the gradient, one tensor a thread"},
    {"density", "D", OPTION_REAL, offsetof(codec_settings, density), "0.001", 1e-7, 1,
     .help = "fraction sent, where the scheme has that option and the spec does not set it"},
    {"threads", "T", OPTION_INTEGER, offsetof(codec_settings, threads), "1", 1, MAX_THREADS,
     .help = "threads that share the elements"},
    {.help = "Output"},
    {"json", "FILE", OPTION_TEXT, offsetof(codec_settings, json), .alone = "-",
     .help = "also write the figures as JSON; alone or -: to standard output"},
};

static const option_page page = {
    .usage = "thinwire bench codec [options]",
    .description =
        "Times one step of a compression scheme: encode (everything from the local gradient to the packet: momentum, "
        "residual, selection, coding) and decode (from the packet to the mean). Beside it stands the floor: streaming "
        "through memory the bytes that the scheme cannot avoid touching, measured in the same run, turn by turn. The "
        "look "
        "for NaN is not part of it: a reducer takes it as gradients arrive, fresh in the cache. "
        "Figures are medians.",
    .examples = "  thinwire bench codec\n"
                "  thinwire bench codec --codec dgc:density=0.001 --count 25600000 --json -\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* ---- one thread's share ---- */

typedef struct share {
    size_t count;
    const float *source; /* where gradients come from */
    float *gradient, *b, *c;
    tw_scheme *scheme;
    unsigned floor_bytes;
    tw_round round;
    tw_status status;
    char text[512]; /* of a failure: tw_last_error() is the thread's own */
    int repetition;
    void (*work)(struct share *); /* what the next turn does */
} share;

/* A fresh gradient: the source, shifted so that no two steps are alike. */
static void refill(share *s)
{
    size_t shift = 16 * (size_t)(s->repetition++ * 37 % 64);
    memcpy(s->gradient, s->source + shift, s->count * sizeof *s->gradient);
}

/* The norm is given: the reducer takes it from a gradient while backward leaves it in the cache. */
static void encode(share *s)
{
    float *tensors[] = {s->gradient};
    s->round = (tw_round){0};
    s->status = tw_scheme_begin(s->scheme, tensors, 1);
    if (s->status == TW_OK) s->status = tw_scheme_next(s->scheme, &s->round);
}

static void decode(share *s)
{
    const void *packet = s->round.data;
    size_t size = s->round.size;
    while (s->status == TW_OK && s->round.kind != TW_ROUND_DONE) {
        s->round.packets = &packet;
        s->round.sizes = &size;
        s->status = tw_scheme_next(s->scheme, &s->round);
    }
}

static void stream(share *s)
{
    bench_stream(s->floor_bytes, s->gradient, s->b, s->c, s->count);
}

static void *run_share(void *argument)
{
    share *s = argument;
    s->work(s);
    if (s->status != TW_OK) snprintf(s->text, sizeof s->text, "%s", tw_last_error());
    return NULL;
}

/* Runs one piece of work on every share at once; *seconds receives what the slowest took. */
static tw_status run_all(share *shares, long threads, void (*work)(share *), double *seconds)
{
    pthread_t ids[MAX_THREADS];
    long started = 1;
    double start = tw_clock();
    for (long t = 0; t < threads; t++) shares[t].work = work;
    while (started < threads && pthread_create(&ids[started], NULL, run_share, &shares[started]) == 0) started++;
    run_share(&shares[0]);
    for (long t = 1; t < started; t++) pthread_join(ids[t], NULL);
    *seconds = tw_clock() - start;
    if (started < threads) return tw_fail(TW_ERROR_SYSTEM, "the system has no thread left for --threads %ld", threads);
    for (long t = 0; t < threads; t++)
        if (shares[t].status != TW_OK) return tw_fail(shares[t].status, "%s", shares[t].text);
    return TW_OK;
}

/* ---- one scheme ---- */

/* What a scheme's run gave. */
typedef struct figures {
    double encode_ms, decode_ms, floor_ms;
    tw_cost cost; /* over all threads */
} figures;

static void fill_source(float *source, size_t count)
{
    for (size_t i = 0; i < count; i += 4) {
        uint32_t words[4];
        tw_random(1, 0, i, words);
        for (size_t j = 0; j < 4 && i + j < count; j++) {
            double uniform =
                (words[j] + 0.5) / 4294967296.0; /* Laplace: heavier tails than normal, as gradients have */
            source[i + j] = (float)(uniform < 0.5 ? log(2 * uniform) : -log(2 - 2 * uniform));
        }
    }
}

/* Adds "key=value" to a spec. */
static void add_option(char *spec, size_t capacity, const char *key, double value)
{
    size_t used = strlen(spec);
    if (used < capacity) snprintf(spec + used, capacity - used, "%c%s=%.9g", strchr(spec, ':') ? ',' : ':', key, value);
}

/* The spec with the density of the command line and without warm-up, as far as the scheme knows these options and the
 * spec does not set them itself; a refusal speaks of the spec alone, which is tried last. */
static tw_status create_scheme(const codec_settings *settings, const char *spec, size_t count, tw_scheme **scheme)
{
    static const struct {
        int density, warmup;
    } tries[] = {{1, 1}, {0, 1}, {1, 0}, {0, 0}};
    tw_tensor tensor = {"gradient", 2, {1, count}};
    tw_status status = TW_OK;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        char whole[1024];
        snprintf(whole, sizeof whole, "%s", spec);
        if (tries[i].density) add_option(whole, sizeof whole, "density", settings->density);
        if (tries[i].warmup) add_option(whole, sizeof whole, "warmup_steps", 0);
        status = tw_scheme_create(whole, &tensor, 1, 0, 1, scheme);
        if (status != TW_ERROR_SPEC) return status;
    }
    return status;
}

static tw_status create_share(share *s, const codec_settings *settings, const char *spec, const float *source)
{
    s->count = (size_t)(settings->count / settings->threads);
    s->source = source;
    s->floor_bytes = tw_scheme_floor_bytes(scheme_find(spec));
    s->gradient = bench_floats(s->count);
    s->b = bench_floats(s->count);
    s->c = bench_floats(s->count);
    if (!s->gradient || !s->b || !s->c)
        return tw_fail(TW_ERROR_MEMORY, "no memory for --count %ld; take fewer", settings->count);
    return create_scheme(settings, spec, s->count, &s->scheme);
}

static void destroy_share(share *s)
{
    tw_scheme_destroy(s->scheme);
    free(s->gradient);
    free(s->b);
    free(s->c);
}

static tw_status add_cost(const share *s, tw_cost *sum)
{
    tw_cost cost = {.struct_size = sizeof cost};
    TW_TRY(tw_scheme_cost(s->scheme, &cost));
    sum->elements_sent += cost.elements_sent;
    sum->packet_bytes += cost.packet_bytes + cost.exact_bytes;
    sum->index_bytes += cost.index_bytes;
    return TW_OK;
}

/* Scheme and floor take turns, so that a busy neighbour slows both. */
static tw_status measure(share *shares, long threads, figures *out)
{
    double encoded[REPETITIONS], decoded[REPETITIONS], streamed[REPETITIONS];
    for (int i = -WARMUP; i < REPETITIONS; i++) {
        int slot = i < 0 ? 0 : i;
        double untimed;
        TW_TRY(run_all(shares, threads, refill, &untimed));
        TW_TRY(run_all(shares, threads, encode, &encoded[slot]));
        TW_TRY(run_all(shares, threads, decode, &decoded[slot]));
        TW_TRY(run_all(shares, threads, refill, &untimed));
        TW_TRY(run_all(shares, threads, stream, &streamed[slot]));
    }
    out->encode_ms = 1e3 * bench_median(encoded, REPETITIONS);
    out->decode_ms = 1e3 * bench_median(decoded, REPETITIONS);
    out->floor_ms = 1e3 * bench_median(streamed, REPETITIONS);
    for (long t = 0; t < threads; t++) TW_TRY(add_cost(&shares[t], &out->cost));
    return TW_OK;
}

static tw_status run_scheme(const codec_settings *settings, const char *spec, const float *source, figures *out)
{
    share shares[MAX_THREADS] = {0};
    tw_status status = TW_OK;
    for (long t = 0; t < settings->threads && status == TW_OK; t++)
        status = create_share(&shares[t], settings, spec, source);
    if (status == TW_OK) status = measure(shares, settings->threads, out);
    for (long t = 0; t < settings->threads; t++) destroy_share(&shares[t]);
    return status;
}

/* ---- the table
 * -------------------------------------------------------------------------------------------------------- */

/* log2 of n choose k, an index: what a uniform support costs at least. */
static double bound_bits(double n, double k)
{
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2) / k;
}

static void add_result(cJSON *results, const codec_settings *settings, const char *spec, const figures *f)
{
    double sent = (double)f->cost.elements_sent;
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "codec", spec);
    cJSON_AddNumberToObject(row, "count", (double)settings->count);
    cJSON_AddNumberToObject(row, "threads", (double)settings->threads);
    cJSON_AddNumberToObject(row, "encode_ms", f->encode_ms);
    cJSON_AddNumberToObject(row, "floor_ms", f->floor_ms);
    cJSON_AddNumberToObject(row, "encode_over_floor", f->encode_ms / f->floor_ms);
    cJSON_AddNumberToObject(row, "floor_bytes_per_element", tw_scheme_floor_bytes(scheme_find(spec)));
    cJSON_AddNumberToObject(row, "decode_ms", f->decode_ms);
    cJSON_AddNumberToObject(row, "packet_bytes", (double)f->cost.packet_bytes);
    cJSON_AddNumberToObject(row, "elements_sent", sent);
    if (sent > 0) {
        cJSON_AddNumberToObject(row, "bits_per_index", 8 * (double)f->cost.index_bytes / sent);
        cJSON_AddNumberToObject(row, "bound_bits_per_index", bound_bits((double)settings->count, sent));
    } else {
        cJSON_AddNullToObject(row, "bits_per_index");
        cJSON_AddNullToObject(row, "bound_bits_per_index");
    }
    cJSON_AddItemToArray(results, row);
}

static void print_header(FILE *table)
{
    fprintf(table, "%-24s %10s %10s %7s %10s %12s %9s %9s\n", "codec", "encode ms", "floor ms", "ratio", "decode ms",
            "packet bytes", "bits/idx", "bound");
}

static void print_row(FILE *table, const codec_settings *settings, const char *spec, const figures *f)
{
    double sent = (double)f->cost.elements_sent;
    fprintf(table, "%-24s %10.2f %10.2f %7.2f %10.2f %12.0f", spec, f->encode_ms, f->floor_ms,
            f->encode_ms / f->floor_ms, f->decode_ms, (double)f->cost.packet_bytes);
    if (sent > 0)
        fprintf(table, " %9.3f %9.3f\n", 8 * (double)f->cost.index_bytes / sent,
                bound_bits((double)settings->count, sent));
    else
        fprintf(table, " %9s %9s\n", "-", "-");
}

static tw_status run_specs(const codec_settings *settings, const float *source, FILE *table, cJSON *results)
{
    int all = strcmp(settings->codec, "all") == 0;
    for (size_t i = 0; i < (all ? tw_scheme_count() : 1); i++) {
        const char *spec = all ? tw_scheme_name(i) : settings->codec;
        figures f = {0};
        TW_TRY(run_scheme(settings, spec, source, &f));
        if (i == 0) print_header(table);
        print_row(table, settings, spec, &f);
        fflush(table);
        add_result(results, settings, spec, &f);
    }
    return TW_OK;
}

static tw_status run_bench(const codec_settings *settings)
{
    if (settings->count < settings->threads)
        return tw_fail(TW_ERROR_ARGUMENT, "--count %ld leaves some of --threads %ld without an element",
                       settings->count, settings->threads);
    if (settings->json) TW_TRY(json_check(settings->json));
    size_t share_count = (size_t)(settings->count / settings->threads), padded = share_count + (size_t)16 * 64;
    float *source = bench_floats(padded);
    if (!source) return tw_fail(TW_ERROR_MEMORY, "no memory for --count %ld; take fewer", settings->count);
    fill_source(source, padded);
    cJSON *root = cJSON_CreateObject(), *results = cJSON_AddArrayToObject(root, "results");
    cJSON_AddStringToObject(root, "isa", tw_isa());
    tw_status status = run_specs(settings, source, json_beside(settings->json), results);
    if (status == TW_OK && settings->json) status = json_write(settings->json, root);
    cJSON_Delete(root);
    free(source);
    return status;
}

static int run(void *settings, options *set)
{
    (void)set;
    return run_bench(settings) == TW_OK ? EXIT_DONE : launch_refuse();
}

int bench_codec(int argc, char **argv)
{
    codec_settings settings = {0};
    return command_run(&page, argc, argv, &settings, run);
}
