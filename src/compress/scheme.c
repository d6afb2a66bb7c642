/* tw_scheme_*: what all schemes share. */
#include "scheme.h"

#include "dense.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "names.h"
#include "patterns.h"
#include "sized.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAME = 255, MAX_RANKS = 4096 };

static const tw_option leftover_options[] = {
    {"min_elements", TW_OPTION_INTEGER, offsetof(tw_common_options, min_elements), "128", 1, 1e9, NULL,
     "tensors with fewer elements are not compressed"},
    {"min_dims", TW_OPTION_INTEGER, offsetof(tw_common_options, min_dims), "2", 0, TW_MAX_DIMS, NULL,
     "tensors with fewer dimensions (biases, norms) are not compressed"},
    {"dense", TW_OPTION_TEXT, offsetof(tw_common_options, dense), "", 0, 0, NULL,
     "names of tensors not to compress: patterns with * and ?, separated by |"},
    {"leftovers", TW_OPTION_CHOICE, offsetof(tw_common_options, leftovers), "bf16", 0, 0, TW_DENSE_CHOICES,
     "how tensors that are not compressed travel; what rounding loses is sent with the next step"},
};
static const tw_option message_options[] = {
    {"message_kb", TW_OPTION_INTEGER, offsetof(tw_common_options, message_kb), "4096", 1, 1 << 21, NULL,
     "tensors are fused into messages of at least that much fp32"},
    {"overlap", TW_OPTION_SWITCH, offsetof(tw_common_options, overlap), "on", 0, 0, NULL,
     "exchange on a thread of its own while backward runs"},
};
enum {
    LEFTOVER_OPTIONS = sizeof leftover_options / sizeof *leftover_options,
    MESSAGE_OPTIONS = sizeof message_options / sizeof *message_options,
    OPTION_SETS = 3
};

static int has_leftovers(const tw_scheme_ops *ops)
{
    return ops->plan && !ops->every_tensor;
}

/* All that a spec of this scheme may say, and where it goes. Returns how many sets. */
static size_t list_options(const tw_scheme_ops *ops, void *scheme, tw_common_options *common,
                           tw_option_set sets[OPTION_SETS])
{
    size_t count = 0;
    sets[count++] = (tw_option_set){ops->options, ops->option_count, scheme};
    if (has_leftovers(ops)) sets[count++] = (tw_option_set){leftover_options, LEFTOVER_OPTIONS, common};
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

static tw_status read_ops(const char *spec, const tw_scheme_ops **ops)
{
    char name[64];
    TW_TRY(tw_spec_name(spec, name, sizeof name));
    *ops = find_scheme(name);
    return *ops ? TW_OK : unknown_scheme(name);
}

static tw_status parse_options(const tw_scheme_ops *ops, const char *spec, void *scheme, tw_common_options *common)
{
    tw_option_set sets[OPTION_SETS];
    tw_status status = tw_spec_parse(spec, sets, list_options(ops, scheme, common, sets));
    return status == TW_ERROR_SPEC ? tw_fail_in(status, ops->name) : status;
}

tw_status tw_common_options_read(const char *spec, tw_common_options *options)
{
    const tw_scheme_ops *ops;
    void *scratch;
    TW_TRY(read_ops(spec, &ops));
    TW_TRY(tw_allocate(1, ops->struct_size, &scratch));
    tw_status status = parse_options(ops, spec, scratch, options);
    tw_option_set own = {ops->options, ops->option_count, scratch};
    if (status == TW_OK) tw_spec_release(&own, 1);
    tw_free(scratch);
    return status;
}

tw_status tw_spec_check(const char *spec, const tw_tensor *tensors, size_t count)
{
    const tw_scheme_ops *ops;
    tw_scheme *scheme;
    tw_option_set sets[OPTION_SETS];
    TW_TRY(read_ops(spec, &ops));
    if (!ops->check) return TW_OK;
    TW_TRY(tw_allocate(1, ops->struct_size, &scheme));
    tw_status status = parse_options(ops, spec, scheme, &scheme->common);
    if (status == TW_OK) {
        status = ops->check(scheme, tensors, count);
        tw_spec_release(sets, list_options(ops, scheme, &scheme->common, sets));
    }
    tw_free(scheme);
    return status;
}

size_t tw_tensor_count(const tw_tensor *tensor)
{
    size_t count = 1;
    for (size_t i = 0; tensor && i < tensor->dims && i < TW_MAX_DIMS; i++) count *= tensor->shape[i];
    return tensor ? count : 0;
}

static tw_status check_tensor(const tw_tensor *tensor, size_t index)
{
    if (!tensor->name || !*tensor->name || strlen(tensor->name) > MAX_NAME)
        return tw_fail(TW_ERROR_ARGUMENT, "tensor %zu: a name has 1 to %d bytes", index, MAX_NAME);
    if (tensor->dims > TW_MAX_DIMS)
        return tw_fail(TW_ERROR_ARGUMENT, "tensor %s has %zu dimensions; at most %d", tensor->name, tensor->dims,
                       TW_MAX_DIMS);
    size_t count = 1;
    for (size_t i = 0; i < tensor->dims; i++) {
        if (tensor->shape[i] == 0) return tw_fail(TW_ERROR_ARGUMENT, "tensor %s is empty", tensor->name);
        if (count > ((size_t)1 << 31) / tensor->shape[i])
            return tw_fail(TW_ERROR_ARGUMENT, "tensor %s has more than 2^31 elements", tensor->name);
        count *= tensor->shape[i];
    }
    return TW_OK;
}

static tw_status check_unique(const tw_tensor *tensors, size_t count, tw_names *names)
{
    for (size_t i = 0; i < count; i++) {
        if (tw_names_find(names, tensors[i].name) != TW_NO_NAME)
            return tw_fail(TW_ERROR_ARGUMENT, "two tensors are called %s", tensors[i].name);
        TW_TRY(tw_names_add(names, tensors[i].name, i));
    }
    return TW_OK;
}

tw_status tw_table_check(const tw_tensor *tensors, size_t count)
{
    tw_names names = {0};
    if (count == 0) return tw_fail(TW_ERROR_ARGUMENT, "the table of tensors is empty");
    TW_TRY(tw_need(tensors, "tensors"));
    for (size_t i = 0; i < count; i++) TW_TRY(check_tensor(&tensors[i], i));
    tw_status status = check_unique(tensors, count, &names);
    tw_names_release(&names);
    return status;
}

/* Why a tensor is not compressed; 0 if it is. */
static int tell_leftover(const tw_scheme *scheme, const tw_scheme_tensor *tensor, char *why, size_t room)
{
    const tw_common_options *common = &scheme->common;
    if (tensor->dims < (size_t)common->min_dims)
        return snprintf(why, room, "%zu dimension%s", tensor->dims, tensor->dims == 1 ? "" : "s");
    if (tensor->count < (size_t)common->min_elements)
        return snprintf(why, room, "%zu elements < min_elements=%" PRId64, tensor->count, common->min_elements);
    if (tw_patterns_fit(common->dense, tensor->name)) return snprintf(why, room, "dense=%s", common->dense);
    return 0;
}

/* Decides whether a tensor is compressed, and says why not. */
static void classify(const tw_scheme *scheme, tw_scheme_tensor *tensor)
{
    static const char *const formats[] = {"fp32", "fp16", "bf16"};
    char why[96];
    if (!scheme->ops->plan)
        snprintf(tensor->plan, sizeof tensor->plan, "%s", scheme->ops->name);
    else if (has_leftovers(scheme->ops) && tell_leftover(scheme, tensor, why, sizeof why))
        snprintf(tensor->plan, sizeof tensor->plan, "dense %s: %s", formats[scheme->common.leftovers], why);
    else
        tensor->compressed = 1;
}

static tw_status copy_table(tw_scheme *scheme, const tw_tensor *tensors)
{
    for (size_t i = 0; i < scheme->count; i++) {
        tw_scheme_tensor *tensor = &scheme->tensors[i];
        TW_TRY(tw_copy_string(tensors[i].name, &tensor->name));
        tensor->dims = tensors[i].dims;
        memcpy(tensor->shape, tensors[i].shape, sizeof tensor->shape);
        tensor->count = tw_tensor_count(&tensors[i]);
        classify(scheme, tensor);
    }
    return TW_OK;
}

static tw_status build(tw_scheme *scheme, const char *spec, const tw_tensor *tensors)
{
    TW_TRY(parse_options(scheme->ops, spec, scheme, &scheme->common));
    TW_TRY(tw_allocate(scheme->count, sizeof *scheme->tensors, &scheme->tensors));
    TW_TRY(tw_allocate(scheme->count, sizeof *scheme->gradients, &scheme->gradients));
    TW_TRY(copy_table(scheme, tensors));
    TW_TRY(scheme->ops->create(scheme));
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed)
            scheme->ops->plan(scheme, i, scheme->tensors[i].plan, sizeof scheme->tensors[i].plan);
    return TW_OK;
}

tw_status tw_scheme_create(const char *spec, const tw_tensor *tensors, size_t count, int rank, int size,
                           tw_scheme **out)
{
    const tw_scheme_ops *ops;
    tw_scheme *scheme;
    TW_TRY(tw_need(out, "scheme"));
    if (size < 1 || size > MAX_RANKS || rank < 0 || rank >= size)
        return tw_fail(TW_ERROR_ARGUMENT, "rank %d of %d: there are 1 to %d ranks, numbered from 0", rank, size,
                       MAX_RANKS);
    TW_TRY(tw_isa_check());
    TW_TRY(read_ops(spec, &ops));
    TW_TRY(tw_table_check(tensors, count));
    TW_TRY(tw_allocate(1, ops->struct_size, &scheme));
    scheme->ops = ops;
    scheme->rank = rank;
    scheme->size = size;
    scheme->count = count;
    tw_status status = build(scheme, spec, tensors);
    if (status != TW_OK) {
        tw_scheme_destroy(scheme);
        return status;
    }
    *out = scheme;
    return TW_OK;
}

void tw_scheme_destroy(tw_scheme *scheme)
{
    if (!scheme) return;
    if (scheme->ops->destroy) scheme->ops->destroy(scheme);
    for (size_t i = 0; scheme->tensors && i < scheme->count; i++) tw_free(scheme->tensors[i].name);
    tw_option_set sets[OPTION_SETS];
    tw_spec_release(sets, list_options(scheme->ops, scheme, &scheme->common, sets));
    tw_free(scheme->tensors);
    tw_free(scheme->gradients);
    tw_free(scheme);
}

/* The norm of this message alone; not finite if an element is not. */
static double message_norm(const tw_scheme *scheme)
{
    double sum = 0;
    for (size_t i = 0; i < scheme->count; i++)
        sum += tw_kernels_best()->sum_squares(scheme->gradients[i], scheme->tensors[i].count);
    return sqrt(sum);
}

/* g is the mean over a worker's batch; N of them are summed. The global norm is about N^1/2 times a share's (noise adds
 * in squares), hence the threshold clip * N^-1/2 for a share. */
static float share_scale(const tw_scheme *scheme, double norm)
{
    double threshold = tw_scheme_clip(scheme) / sqrt(scheme->size);
    double share = norm / scheme->size;
    double shrink = threshold > 0 && share > threshold ? threshold / share : 1;
    return (float)(shrink / scheme->size);
}

static tw_status check_whole(const tw_scheme *scheme)
{
    return scheme->failed ? tw_fail(TW_ERROR_ORDER, "a round of this scheme failed; destroy it") : TW_OK;
}

static tw_status check_gradients(const tw_scheme *scheme, float *const *gradients)
{
    TW_TRY(tw_need(gradients, "gradients"));
    for (size_t i = 0; i < scheme->count; i++)
        if (!gradients[i])
            return tw_fail(TW_ERROR_ARGUMENT, "gradients[%zu], of %s, is NULL", i, scheme->tensors[i].name);
    return TW_OK;
}

tw_status tw_scheme_begin(tw_scheme *scheme, float *const *gradients, double norm)
{
    TW_TRY(tw_need(scheme, "scheme"));
    TW_TRY(check_gradients(scheme, gradients));
    TW_TRY(check_whole(scheme));
    if (scheme->open)
        return tw_fail(TW_ERROR_ORDER, "the step before is not done: call tw_scheme_next until it says so");
    memcpy(scheme->gradients, gradients, scheme->count * sizeof *gradients);
    if (norm < 0) norm = message_norm(scheme);
    scheme->finite = norm <= TW_LARGEST_NORM; /* false for NaN */
    scheme->scale = share_scale(scheme, norm);
    scheme->begun++;
    scheme->phase = 0;
    scheme->asked = TW_ROUND_DONE;
    scheme->skipped = 0;
    scheme->account = (tw_account){0};
    scheme->open = 1;
    return TW_OK;
}

/* The packets that the last round asked for are there. */
static tw_status check_packets(const tw_scheme *scheme, const tw_round *round)
{
    int count = scheme->asked == TW_ROUND_ALLGATHER ? scheme->size : scheme->asked == TW_ROUND_BROADCAST;
    if (count && (!round->packets || !round->sizes))
        return tw_fail(TW_ERROR_ARGUMENT, "the round's packets and sizes are NULL; fill them in before tw_scheme_next");
    for (int i = 0; i < count; i++)
        if (!round->packets[i] && round->sizes[i])
            return tw_fail(TW_ERROR_ARGUMENT, "packet %d of the round is NULL and its size %zu", i, round->sizes[i]);
    return TW_OK;
}

tw_status tw_scheme_next(tw_scheme *scheme, tw_round *round)
{
    TW_TRY(tw_need(scheme, "scheme"));
    TW_TRY(tw_need(round, "round"));
    TW_TRY(check_whole(scheme));
    if (!scheme->open) return tw_fail(TW_ERROR_ORDER, "no step is under way: call tw_scheme_begin first");
    TW_TRY(check_packets(scheme, round));
    tw_status status = scheme->ops->next(scheme, round);
    scheme->failed = status != TW_OK;
    scheme->asked = (int)round->kind;
    round->packets = NULL; /* those of the next round are other ones */
    round->sizes = NULL;
    if (scheme->failed || round->kind != TW_ROUND_DONE) return status;
    round->skipped = scheme->skipped;
    scheme->open = 0;
    scheme->step++;
    scheme->revertible = 1;
    scheme->settled = 0;
    return scheme->skipped ? tw_scheme_revert(scheme) : TW_OK;
}

tw_status tw_scheme_revert(tw_scheme *scheme)
{
    TW_TRY(tw_need(scheme, "scheme"));
    if (scheme->open) return tw_fail(TW_ERROR_ORDER, "the step is not done yet");
    if (scheme->revertible && scheme->settled)
        return tw_fail(TW_ERROR_ORDER, "the state was saved since the step: take a step back before saving");
    if (scheme->revertible && scheme->ops->revert) scheme->ops->revert(scheme);
    scheme->revertible = 0; /* a second revert finds nothing to take back */
    return TW_OK;
}

tw_status tw_scheme_set_rate(tw_scheme *scheme, float rate)
{
    TW_TRY(tw_need(scheme, "scheme"));
    if (scheme->open) return tw_fail(TW_ERROR_ORDER, "the rate is told between steps, and this one is not done yet");
    if (!(rate >= 0) || isinf(rate)) return tw_fail(TW_ERROR_ARGUMENT, "a learning rate of %g; at least 0", rate);
    scheme->rate = rate;
    return TW_OK;
}

double tw_scheme_clip(const tw_scheme *scheme)
{
    return scheme && scheme->ops->clip ? scheme->ops->clip(scheme) : 0;
}

float tw_scheme_momentum(const tw_scheme *scheme, int *nesterov)
{
    *nesterov = 0;
    return scheme->ops->momentum ? scheme->ops->momentum(scheme, nesterov) : 0;
}

tw_status tw_scheme_walk(tw_scheme *scheme, tw_walk *walk)
{
    if (scheme->ops->settle) scheme->ops->settle(scheme);
    return scheme->ops->walk ? scheme->ops->walk(scheme, walk) : TW_OK;
}

tw_status tw_scheme_cost(const tw_scheme *scheme, tw_cost *cost)
{
    TW_TRY(tw_need(scheme, "scheme"));
    TW_TRY(tw_need(cost, "cost"));
    tw_cost now = {.warmup = scheme->account.warmup,
                   .elements_sent = scheme->account.elements_sent,
                   .packet_bytes = scheme->account.packet_bytes,
                   .index_bytes = scheme->account.index_bytes,
                   .exact_bytes = scheme->account.exact_bytes};
    return tw_copy_sized(cost, &now, sizeof now, "tw_cost");
}

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
