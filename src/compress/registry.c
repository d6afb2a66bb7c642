/* Which schemes there are, and what a spec of each may say. */
#include "registry.h"

#include "compress.h"
#include "dense.h"
#include "error.h"
#include "memory.h"

#include <stdio.h>
#include <string.h>

#define MIN_ELEMENTS(initially)                                                                                        \
    {                                                                                                                  \
        "min_elements", TW_OPTION_INTEGER, offsetof(tw_common_options, min_elements), initially, 1, 1e9, NULL,         \
            "tensors with fewer elements are not compressed"                                                           \
    }
#define MIN_DIMS(initially)                                                                                            \
    {                                                                                                                  \
        "min_dims", TW_OPTION_INTEGER, offsetof(tw_common_options, min_dims), initially, 0, TW_MAX_DIMS, NULL,         \
            "tensors with fewer dimensions (biases, norms) are not compressed"                                         \
    }
static const tw_option size_options[] = {MIN_ELEMENTS("128"), MIN_DIMS("2")};
static const tw_option small_too_options[] = {MIN_ELEMENTS("1"), MIN_DIMS("1")};
static const tw_option leftover_options[] = {
    {"dense", TW_OPTION_TEXT, offsetof(tw_common_options, dense), "", 0, 0, NULL,
     "names of tensors not to compress: patterns with * and ?, separated by |"},
    {"leftovers", TW_OPTION_CHOICE, offsetof(tw_common_options, leftovers), "bf16", 0, 0, TW_DENSE_CHOICES,
     "how tensors that are not compressed travel; what rounding loses is sent with the next step"},
};
static const tw_option message_options[] = {
    {"message_kb", TW_OPTION_INTEGER, offsetof(tw_common_options, message_kb), "0", 0, 1 << 21, NULL,
     "tensors are fused into messages of at least that much fp32; 0: what suits the scheme and the tensors"},
    {"in_flight", TW_OPTION_INTEGER, offsetof(tw_common_options, in_flight), "2", 1, 8, NULL,
     "messages under way at once: while one is on the wire, another is coded"},
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
    MESSAGE_OPTIONS = sizeof message_options / sizeof *message_options,
    OPTION_SETS = 4
};

int tw_leaves_tensors(const tw_scheme_ops *ops)
{
    return ops->plan && !ops->every_tensor;
}

/* All that a spec of this scheme may say, and where it goes. Returns how many sets. */
static size_t list_options(const tw_scheme_ops *ops, void *scheme, tw_common_options *common,
                           tw_option_set sets[OPTION_SETS])
{
    size_t count = 0;
    sets[count++] = (tw_option_set){ops->options, ops->option_count, scheme};
    if (tw_leaves_tensors(ops)) {
        sets[count++] = (tw_option_set){ops->small_too ? small_too_options : size_options, SIZE_OPTIONS, common};
        sets[count++] = (tw_option_set){leftover_options, LEFTOVER_OPTIONS, common};
    }
    sets[count++] = (tw_option_set){message_options, MESSAGE_OPTIONS, common};
    return count;
}

static const tw_scheme_ops *find_scheme(const char *name)
{
    const tw_scheme_ops *ops;
    for (size_t i = 0; (ops = tw_scheme_at(i)); i++)
        if (strcmp(ops->name, name) == 0) return ops;
    return NULL;
}

static tw_status unknown_scheme(const char *name)
{
    char names[512] = "";
    const tw_scheme_ops *ops;
    for (size_t i = 0, used = 0; (ops = tw_scheme_at(i)) && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", ops->name);
    return tw_fail(TW_ERROR_SPEC, "no scheme \"%s\"; there are: %s", name, names);
}

tw_status tw_scheme_find(const char *spec, const tw_scheme_ops **ops)
{
    char name[64];
    TW_TRY(tw_spec_name(spec, name, sizeof name));
    *ops = find_scheme(name);
    return *ops ? TW_OK : unknown_scheme(name);
}

tw_status tw_scheme_options_parse(const tw_scheme_ops *ops, const char *spec, void *scheme, tw_common_options *common)
{
    tw_option_set sets[OPTION_SETS];
    tw_status status = tw_spec_parse(spec, sets, list_options(ops, scheme, common, sets));
    return status == TW_ERROR_SPEC ? tw_fail_in(status, ops->name) : status;
}

void tw_scheme_options_release(const tw_scheme_ops *ops, void *scheme, tw_common_options *common)
{
    tw_option_set sets[OPTION_SETS];
    tw_spec_release(sets, list_options(ops, scheme, common, sets));
}

tw_status tw_common_options_read(const char *spec, tw_common_options *options)
{
    const tw_scheme_ops *ops;
    void *scratch;
    TW_TRY(tw_scheme_find(spec, &ops));
    TW_TRY(tw_allocate(1, ops->struct_size, &scratch));
    tw_status status = tw_scheme_options_parse(ops, spec, scratch, options);
    tw_option_set own = {ops->options, ops->option_count, scratch};
    if (status == TW_OK) tw_spec_release(&own, 1);
    options->compresses = tw_leaves_tensors(ops);
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
    tw_status status = tw_scheme_options_parse(ops, spec, scheme, &scheme->common);
    if (status == TW_OK) {
        status = ops->check(scheme, tensors, count);
        tw_scheme_options_release(ops, scheme, &scheme->common);
    }
    tw_free(scheme);
    return status;
}

/* ---- the public lists ----------------------------------------------------------------------------------------------
 */

unsigned tw_scheme_floor_bytes(size_t index)
{
    const tw_scheme_ops *ops = tw_scheme_at(index);
    return ops ? ops->floor_bytes : 0;
}

size_t tw_scheme_count(void)
{
    size_t count = 0;
    while (tw_scheme_at(count)) count++;
    return count;
}

const char *tw_scheme_name(size_t index)
{
    const tw_scheme_ops *ops = tw_scheme_at(index);
    return ops ? ops->name : NULL;
}

const char *tw_scheme_summary(size_t index)
{
    const tw_scheme_ops *ops = tw_scheme_at(index);
    return ops ? ops->summary : NULL;
}

static size_t describe(const tw_option_set *set, char *text, size_t capacity, size_t used)
{
    for (size_t i = 0; i < set->count; i++)
        used += tw_option_describe(&set->options[i], used < capacity ? text + used : NULL,
                                   used < capacity ? capacity - used : 0);
    return used;
}

size_t tw_scheme_help(size_t index, char *text, size_t capacity)
{
    const tw_scheme_ops *ops = tw_scheme_at(index);
    if (!text) capacity = 0;
    if (!ops) return (size_t)snprintf(text, capacity, "%s", "");
    size_t used = (size_t)snprintf(text, capacity, "%s - %s\n", ops->name, ops->summary);
    tw_option_set sets[OPTION_SETS];
    size_t count = list_options(ops, NULL, NULL, sets);
    for (size_t i = 0; i < count; i++) used = describe(&sets[i], text, capacity, used);
    return used;
}
