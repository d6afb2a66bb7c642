/* Which schemes there are, and what a spec of each may say. */
#include "registry.h"

#include "compress.h"
#include "dense.h"
#include "error.h"
#include "memory.h"
#include "outside.h"
#include "warmup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const tw_option size_options[] = {
    {"min_elements", TW_OPTION_INTEGER, offsetof(tw_common_options, min_elements), "128", 1, 1e9, NULL,
     "tensors with fewer elements are not compressed"},
    {"min_dims", TW_OPTION_INTEGER, offsetof(tw_common_options, min_dims), "2", 0, TW_MAX_DIMS, NULL,
     "tensors with fewer dimensions (biases, norms) are not compressed"},
};
static const tw_option leftover_options[] = {
    {"dense", TW_OPTION_TEXT, offsetof(tw_common_options, dense), "", 0, 0, NULL,
     "names of tensors not to compress: patterns with * and ?, separated by |"},
    {"leftovers", TW_OPTION_CHOICE, offsetof(tw_common_options, leftovers), "bf16", 0, 0, TW_DENSE_CHOICES,
     "how tensors that are not compressed travel; what rounding loses is sent with the next step"},
};
#define IN_FLIGHT(initially)                                                                                           \
    TW_OPTION("in_flight", TW_OPTION_INTEGER, offsetof(tw_common_options, in_flight), initially, 1, 8, NULL,           \
              "messages under way at once: while one is on the wire, another is coded")
static const tw_option in_flight_options[] = {IN_FLIGHT("2")};
/* Large messages wait for each other: for parts to be summed, and for room at peers that others send to. */
static const tw_option dense_in_flight_options[] = {IN_FLIGHT("4")};
static const tw_option message_options[] = {
    {"message_kb", TW_OPTION_INTEGER, offsetof(tw_common_options, message_kb), "0", 0, 1 << 21, NULL,
     "tensors are fused into messages of at least that much fp32; 0: what suits the scheme and the tensors"},
    {"threads", TW_OPTION_INTEGER, offsetof(tw_common_options, threads), "1", 1, 7, NULL,
     "messages coded at once, each on a core of its own; so many more are under way"},
    {"overlap", TW_OPTION_SWITCH, offsetof(tw_common_options, overlap), "on", 0, 0, NULL,
     "exchange on threads of its own, one a message under way, while backward runs"},
    {"per_host", TW_OPTION_INTEGER, offsetof(tw_common_options, per_host), "1", 1, 4096, NULL,
     "workers in a row that are one host: summed exactly there, compressed between hosts"},
};
enum {
    SIZE_OPTIONS = sizeof size_options / sizeof *size_options,
    LEFTOVER_OPTIONS = sizeof leftover_options / sizeof *leftover_options,
    MESSAGE_OPTIONS = sizeof message_options / sizeof *message_options
};

static size_t scheme_option_sets(const void *listed, void *target, tw_option_set sets[TW_OPTION_SETS])
{
    const tw_scheme_ops *ops = listed;
    tw_scheme *scheme = target;
    tw_common_options *common = scheme ? &scheme->common : NULL;
    size_t count = 0;
    const tw_preset *preset = ops->preset;
    sets[count++] = (tw_option_set){ops->options, ops->option_count, scheme, preset};
    if (tw_leaves_tensors(ops)) {
        sets[count++] = (tw_option_set){size_options, SIZE_OPTIONS, common, preset};
        sets[count++] = (tw_option_set){leftover_options, LEFTOVER_OPTIONS, common, preset};
    }
    sets[count++] =
        (tw_option_set){tw_leaves_tensors(ops) ? in_flight_options : dense_in_flight_options, 1, common, preset};
    sets[count++] = (tw_option_set){message_options, MESSAGE_OPTIONS, common, preset};
    return count;
}

static size_t count_own(void)
{
    size_t count = 0;
    while (tw_scheme_own_at(count)) count++;
    return count;
}

const tw_scheme_ops *tw_scheme_at(size_t index)
{
    size_t own = count_own();
    return index < own ? tw_scheme_own_at(index) : tw_outside_at(index - own);
}

static tw_named scheme_named(size_t index)
{
    const tw_scheme_ops *ops = tw_scheme_at(index);
    return ops ? (tw_named){ops->name, ops->summary, ops, tw_scheme_is_settled_at(index)} : (tw_named){0};
}

static const tw_list schemes = {
    "scheme", "schemes", scheme_named, scheme_option_sets,
    "methods of local updates are for tw_outer_create (in Python OuterLoop), gossip schemes "
    "for tw_gossip_create (Gossip)"};

const tw_scheme_ops *tw_scheme_by_name(const char *name)
{
    return tw_list_by_name(&schemes, name).ops;
}

tw_status tw_scheme_find(const char *spec, const tw_scheme_ops **ops)
{
    tw_named found = {0};
    tw_status status = tw_list_find(&schemes, spec, &found);
    *ops = found.ops;
    return status;
}

tw_status tw_scheme_options_parse(const tw_scheme_ops *ops, const char *spec, tw_scheme *scheme)
{
    return tw_list_parse(&schemes, ops, ops->name, spec, scheme);
}

void tw_scheme_options_release(const tw_scheme_ops *ops, tw_scheme *scheme)
{
    tw_list_release(&schemes, ops, scheme);
}

/* No two options of a scheme have one key, and each default is one that a spec may say. */
tw_status tw_scheme_options_check(const tw_scheme_ops *ops)
{
    tw_scheme *scratch;
    tw_option_set sets[TW_OPTION_SETS];
    TW_TRY(tw_options_unique(sets, scheme_option_sets(ops, NULL, sets)));
    TW_TRY(tw_allocate(1, ops->struct_size, &scratch));
    tw_status status = tw_scheme_options_parse(ops, ops->name, scratch);
    if (status == TW_OK) tw_scheme_options_release(ops, scratch);
    tw_free(scratch);
    return status;
}

tw_status tw_common_options_read(const char *spec, const tw_scheme_ops **ops, tw_common_options *options)
{
    tw_scheme *scratch;
    TW_TRY(tw_scheme_find(spec, ops));
    if (!*ops) return TW_ERROR_SPEC; /* it has been refused by now, which the analyser cannot see */
    TW_TRY(tw_allocate(1, (*ops)->struct_size, &scratch));
    tw_status status = tw_scheme_options_parse(*ops, spec, scratch);
    tw_option_set own = {(*ops)->options, (*ops)->option_count, scratch};
    if (status == TW_OK) tw_spec_release(&own, 1);
    *options = scratch->common;
    tw_free(scratch);
    return status;
}

tw_status tw_spec_check(const char *spec, const tw_tensor *tensors, size_t count)
{
    const tw_scheme_ops *ops;
    tw_scheme *scheme;
    TW_TRY(tw_scheme_find(spec, &ops));
    if (!ops->check) return TW_OK;
    TW_TRY(tw_allocate(1, ops->struct_size, &scheme));
    tw_status status = tw_scheme_options_parse(ops, spec, scheme);
    if (status == TW_OK) {
        status = ops->check(scheme, tensors, count);
        tw_scheme_options_release(ops, scheme);
    }
    tw_free(scheme);
    return status;
}

unsigned tw_spec_floor_bytes(const char *spec)
{
    const tw_scheme_ops *ops;
    tw_scheme *scheme;
    unsigned bytes = 0;
    if (tw_scheme_find(spec, &ops) != TW_OK || tw_allocate(1, ops->struct_size, &scheme) != TW_OK) return 0;
    if (tw_scheme_options_parse(ops, spec, scheme) == TW_OK) {
        bytes = ops->floor ? ops->floor(scheme) : ops->floor_bytes;
        tw_scheme_options_release(ops, scheme);
    }
    tw_free(scheme);
    return bytes;
}

/* ---- what suits a run ------------------------------------------------------------------------------------------- */

/* A density in two digits, "0.0068", whatever the process takes for a decimal point. */
static void write_density(double density, char text[16])
{
    unsigned long millionths = lround(1e6 * density), unit = 1;
    while (millionths / unit >= 100) unit *= 10;
    size_t length = (size_t)snprintf(text, 16, "0.%06lu", (millionths + unit / 2) / unit * unit);
    while (text[length - 1] == '0') text[--length] = 0;
}

size_t tw_scheme_spec_for_run(const char *scheme, const char *spec, uint64_t steps, char *text, size_t capacity)
{
    char name[64], digits[16], density[32] = "", warmup[48] = "";
    const tw_scheme_ops *ops = tw_spec_name(scheme, name, sizeof name) == TW_OK ? tw_scheme_by_name(name) : NULL;
    if (ops && ops->of_run) {
        double share = 0;
        int64_t warmup_steps;
        ops->of_run(steps, &share, &warmup_steps);
        write_density(share, digits);
        if (share > 0 && !tw_spec_says(spec, "density")) snprintf(density, sizeof density, ",density=%s", digits);
        if (!tw_spec_says(spec, "warmup_steps"))
            snprintf(warmup, sizeof warmup, ",warmup_steps=%lld", (long long)warmup_steps);
        const char *colon = strchr(spec, ':');
        char *first = *density ? density : warmup;
        if (!colon) *first = ':';
        if (colon && !colon[1]) memmove(first, first + 1, strlen(first));
    }
    return (size_t)snprintf(text, text ? capacity : 0, "%s%s%s", spec, density, warmup);
}

/* ---- the public lists -------------------------------------------------------------------------------------------- */

int tw_schemes_is_experimental(size_t index)
{
    return tw_scheme_at(index) && !tw_scheme_is_settled_at(index);
}

TW_PUBLIC_LIST(tw_schemes, schemes)
