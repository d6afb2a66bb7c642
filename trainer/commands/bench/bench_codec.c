/* thinwire bench codec: what one step of a scheme costs and weighs, beside the least it could. */
#include "bench.h"
#include "codec_run.h"
#include "codec_step.h"
#include "commands.h"
#include "error.h"
#include "exit.h"
#include "json_file.h"
#include "launcher.h"
#include "plugins.h"
#include "scheme.h"

#include <cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <thinwire/thinwire_by_hand.h>

typedef struct codec_settings {
    char *codec, *gradients, *plugin, *json;
    long count, threads;
    int table;
    double density;
} codec_settings;

enum { TABLE_FLAT, TABLE_RESNET50 };

static const option_row rows[] = {
    {.help = "What to measure"},
    {"codec", "SPEC", OPTION_TEXT, offsetof(codec_settings, codec), "all", 0, 0,
     .help = "A scheme with its options, or all. The warm-up is left out unless SPEC sets it"},
    PLUGINS_ROW(offsetof(codec_settings, plugin)),
    {"density", "D", OPTION_REAL, offsetof(codec_settings, density), "0.001", 1e-7, 1,
     .help = "The fraction of the gradient to send, where the scheme has that option and SPEC does not set it"},
    {"threads", "T", OPTION_INTEGER, offsetof(codec_settings, threads), "1", 1, CODEC_THREADS,
     .help = "Share the elements among T threads"},
    {.help = "On which gradients"},
    {"table", NULL, OPTION_CHOICE, offsetof(codec_settings, table), "flat", .choices = "flat|resnet50",
     .help = "The shape of made-up gradients. flat is --count elements as one matrix per thread, nearly square if the "
             "number "
             "divides so, else one row. resnet50 is the 161 tensors of ResNet-50"},
    {"count", "N", OPTION_INTEGER, offsetof(codec_settings, count), "25600000", 1, 2e9,
     .help = "The elements of --table flat"},
    {"gradients", "PATH", OPTION_TEXT, offsetof(codec_settings, gradients),
     .help = "Take real gradients: a folder that thinwire train --dump-gradients wrote, each file a step, or one file. "
             "Residuals are warmed up on all steps first"},
    {.help = "Output"},
    {"json", "FILE", OPTION_TEXT, offsetof(codec_settings, json), .alone = "-",
     .help = "Write the figures to FILE as JSON, too. Without FILE, or with -, write them to standard output"},
};

static const option_page page = {
    .usage = "thinwire bench codec [options]",
    .description =
        "Times one step of a compression scheme, without any network: encode (momentum, residual, selection, coding; "
        "of a scheme of several rounds, all that is computed until the last of them is answered) and decode (from that "
        "answer to the mean). Beside it stands the floor: streaming through memory the bytes that the scheme cannot "
        "avoid touching, measured in the same run, turn by turn; ratio is encode over it, and first that of what is "
        "computed before the first exchange, where ScaleCom has its pass over all elements. step is what a caller "
        "pays: "
        "the whole step of a reducer, from the first submit until wait returns, on one rank without peers, with "
        "overlap=off, in messages of 25 MB as PyTorch's DDP makes them, of gradients that are not in the cache; beside "
        "it its own ratio to the floor. It is of one thread, whatever --threads says; for 2 to 7, a line below "
        "it has the step with threads=T and overlap=on, and how many times as fast it and the floor are. Times are "
        "medians. Bytes are "
        "means a step, of all that a worker contributes: each tensor as a message of its own, tensors of one dimension "
        "as the scheme sends them. bits/idx is what it took to say which elements are sent, its bound log2 C(n,k)/k "
        "over the tensors, what any code needs if all choices are as likely; bits/el the message's bits over all "
        "elements; smaller fp32 over the message.",
    .examples = "  thinwire bench codec\n"
                "  thinwire bench codec --codec dgc:density=0.001 --count 25600000 --json -\n"
                "  thinwire bench codec --table resnet50 --codec dgc:density=0.001,values=fp16\n"
                "  thinwire bench codec --gradients runs/gradients\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* ---- spec and gradients ---- */

enum { SPEC_TEXT = 1024, MOST_ADDED = 64 };

/* Adds "key=value" to a spec. */
static void add_option(char *spec, const char *key, double value)
{
    size_t used = strlen(spec);
    snprintf(spec + used, SPEC_TEXT - used, "%c%s=%.9g", strchr(spec, ':') ? ',' : ':', key, value);
}

static tw_status try_spec(const char *spec)
{
    tw_tensor tensor = {"gradient", 2, {64, 64}};
    tw_scheme *scheme;
    TW_TRY(tw_scheme_create(spec, &tensor, 1, 0, 1, &scheme));
    tw_scheme_destroy(scheme);
    return TW_OK;
}

/* The spec with the density of the command line and without warm-up, as far as the scheme knows these options and the
 * spec does not set them itself; a refusal speaks of the spec alone, which is tried last. */
static tw_status complete_spec(const codec_settings *settings, const char *spec, char whole[SPEC_TEXT])
{
    static const struct {
        int density, warmup;
    } tries[] = {{1, 1}, {0, 1}, {1, 0}, {0, 0}};
    tw_status status = TW_OK;
    if (strlen(spec) > SPEC_TEXT - MOST_ADDED)
        return tw_fail(TW_ERROR_ARGUMENT, "--codec %.40s...: longer than %d bytes", spec, SPEC_TEXT - MOST_ADDED);
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        snprintf(whole, SPEC_TEXT, "%s", spec);
        if (tries[i].density) add_option(whole, "density", settings->density);
        if (tries[i].warmup) add_option(whole, "warmup_steps", 0);
        status = try_spec(whole);
        if (status != TW_ERROR_SPEC) return status;
    }
    return status;
}

static tw_status make_source(const codec_settings *settings, codec_source *source)
{
    if (settings->gradients) return codec_source_load(settings->gradients, source);
    if (settings->table == TABLE_RESNET50) return codec_source_resnet50(source);
    return codec_source_flat((size_t)settings->count, (size_t)settings->threads, source);
}

/* What two options cannot both decide. */
static tw_status bench_codec_check(const codec_settings *settings, const options *set)
{
    if (settings->gradients && options_given(set, "table"))
        return tw_fail(TW_ERROR_ARGUMENT, "--gradients %s has tensors of its own; leave out --table",
                       settings->gradients);
    if (options_given(set, "count") && (settings->gradients || settings->table != TABLE_FLAT))
        return tw_fail(TW_ERROR_ARGUMENT, "--count %ld is for --table flat; other tables have sizes of their own",
                       settings->count);
    if (settings->count < settings->threads)
        return tw_fail(TW_ERROR_ARGUMENT, "--count %ld leaves some of --threads %ld without an element",
                       settings->count, settings->threads);
    return TW_OK;
}

/* ---- the table ---- */

/* A line of figures, as both outputs have it. Indices' bits are NAN where no index was sent. */
typedef struct result {
    const char *codec;
    unsigned floor_bytes;
    size_t count;
    codec_figures figures;
    codec_step_figures step;
    double bits_per_index, bound_bits_per_index, bits_per_element, message_ratio;
} result;

static void derive(result *r)
{
    const codec_figures *f = &r->figures;
    r->bits_per_index = f->index_bytes > 0 ? 8 * f->index_bytes / f->elements_sent : NAN;
    r->bound_bits_per_index = f->index_bytes > 0 ? f->bound_bits / f->elements_sent : NAN;
    r->bits_per_element = 8 * f->message_bytes / (double)r->count;
    r->message_ratio = 32 / r->bits_per_element;
}

static void add_shared(cJSON *row, const codec_step_figures *step)
{
    cJSON_AddNumberToObject(row, "shared_step_ms", step->shared_ms);
    cJSON_AddNumberToObject(row, "shared_step_floor_ms", step->shared_floor_ms);
    cJSON_AddNumberToObject(row, "shared_step_speedup", step->step_ms / step->shared_ms);
    cJSON_AddNumberToObject(row, "shared_step_floor_speedup", step->floor_ms / step->shared_floor_ms);
}

static void add_result(cJSON *results, const codec_settings *settings, const result *r)
{
    const codec_figures *f = &r->figures;
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "codec", r->codec);
    cJSON_AddNumberToObject(row, "count", (double)r->count);
    cJSON_AddNumberToObject(row, "threads", (double)settings->threads);
    cJSON_AddNumberToObject(row, "encode_ms", f->encode_ms);
    cJSON_AddNumberToObject(row, "floor_ms", f->floor_ms);
    cJSON_AddNumberToObject(row, "encode_over_floor", f->encode_ms / f->floor_ms);
    cJSON_AddNumberToObject(row, "first_round_ms", f->first_ms);
    cJSON_AddNumberToObject(row, "first_round_over_floor", f->first_ms / f->floor_ms);
    cJSON_AddNumberToObject(row, "floor_bytes_per_element", r->floor_bytes);
    cJSON_AddNumberToObject(row, "decode_ms", f->decode_ms);
    cJSON_AddNumberToObject(row, "step_ms", r->step.step_ms);
    cJSON_AddNumberToObject(row, "step_floor_ms", r->step.floor_ms);
    cJSON_AddNumberToObject(row, "step_over_floor", r->step.step_ms / r->step.floor_ms);
    if (r->step.shared_ms > 0) add_shared(row, &r->step);
    cJSON_AddNumberToObject(row, "packet_bytes", round(f->message_bytes));
    cJSON_AddNumberToObject(row, "message_bytes", round(f->message_bytes));
    cJSON_AddNumberToObject(row, "message_mib", f->message_bytes / (1 << 20));
    cJSON_AddNumberToObject(row, "exact_bytes", round(f->exact_bytes));
    cJSON_AddNumberToObject(row, "message_ratio", r->message_ratio);
    cJSON_AddNumberToObject(row, "bits_per_element", r->bits_per_element);
    cJSON_AddNumberToObject(row, "elements_sent", round(f->elements_sent));
    cJSON_AddNumberToObject(row, "bits_per_index", r->bits_per_index); /* NAN is written as null */
    cJSON_AddNumberToObject(row, "bound_bits_per_index", r->bound_bits_per_index);
    cJSON_AddItemToArray(results, row);
}

static void print_header(FILE *table)
{
    fprintf(table, "%-24s %10s %10s %7s %7s %10s %9s %7s %13s %9s %9s %9s %9s\n", "codec", "encode ms", "floor ms",
            "ratio", "first", "decode ms", "step ms", "ratio", "message bytes", "bits/idx", "bound", "bits/el",
            "smaller");
}

static void print_result(FILE *table, const result *r, long threads)
{
    const codec_figures *f = &r->figures;
    char bits[24] = "-", bound[24] = "-";
    if (f->index_bytes > 0) {
        snprintf(bits, sizeof bits, "%.3f", r->bits_per_index);
        snprintf(bound, sizeof bound, "%.3f", r->bound_bits_per_index);
    }
    fprintf(table, "%-24s %10.2f %10.2f %7.2f %7.2f %10.2f %9.2f %7.2f %13.0f %9s %9s %9.4g %9.4g\n", r->codec,
            f->encode_ms, f->floor_ms, f->encode_ms / f->floor_ms, f->first_ms / f->floor_ms, f->decode_ms,
            r->step.step_ms, r->step.step_ms / r->step.floor_ms, f->message_bytes, bits, bound, r->bits_per_element,
            r->message_ratio);
    if (r->step.shared_ms > 0)
        fprintf(table,
                "    on %ld threads the step takes %.2f ms, %.2f times as fast; the floor is %.2f times as fast\n",
                threads, r->step.shared_ms, r->step.step_ms / r->step.shared_ms,
                r->step.floor_ms / r->step.shared_floor_ms);
    fflush(table);
}

static tw_status run_spec(const codec_settings *settings, const codec_source *source, const char *spec, result *r)
{
    char whole[SPEC_TEXT];
    TW_TRY(complete_spec(settings, spec, whole));
    *r = (result){.codec = spec, .floor_bytes = tw_spec_floor_bytes(spec), .count = source->elements};
    TW_TRY(codec_run(source, whole, r->floor_bytes, (size_t)settings->threads, &r->figures));
    TW_TRY(codec_step_run(source, whole, r->floor_bytes, (size_t)settings->threads, &r->step));
    derive(r);
    return TW_OK;
}

static tw_status run_specs(const codec_settings *settings, const codec_source *source, FILE *table, cJSON *results)
{
    int all = strcmp(settings->codec, "all") == 0;
    for (size_t i = 0; i < (all ? tw_schemes_count() : 1); i++) {
        result r;
        TW_TRY(run_spec(settings, source, all ? tw_schemes_name(i) : settings->codec, &r));
        if (i == 0) print_header(table);
        print_result(table, &r, settings->threads);
        add_result(results, settings, &r);
    }
    return TW_OK;
}

static tw_status run_source(const codec_settings *settings, const codec_source *source)
{
    static const char *const tables[] = {"flat", "resnet50"};
    cJSON *root = cJSON_CreateObject(), *results = cJSON_AddArrayToObject(root, "results");
    cJSON_AddStringToObject(root, "isa", tw_isa());
    cJSON_AddStringToObject(root, "gradients", settings->gradients ? settings->gradients : tables[settings->table]);
    cJSON_AddNumberToObject(root, "tensors", (double)source->count);
    tw_status status = run_specs(settings, source, json_beside(settings->json), results);
    if (status == TW_OK && settings->json) status = json_write(settings->json, root);
    cJSON_Delete(root);
    return status;
}

static tw_status run_bench(const codec_settings *settings, const options *set)
{
    codec_source source = {0};
    TW_TRY(bench_codec_check(settings, set));
    TW_TRY(plugins_load(settings->plugin));
    if (settings->json) TW_TRY(json_check(settings->json));
    tw_status status = make_source(settings, &source);
    if (status == TW_OK) status = run_source(settings, &source);
    codec_source_release(&source);
    return status;
}

static int bench_codec_run(void *settings, options *set)
{
    return run_bench(settings, set) == TW_OK ? EXIT_DONE : launcher_refuse();
}

int bench_codec(int argc, char **argv)
{
    codec_settings settings = {0};
    return command_run(&page, argc, argv, &settings, bench_codec_run);
}
