/* What an outer loop of another number of workers goes on with. What is shared is the same whoever saved it; what the
 * exchange holds back is regrouped as a reducer's. And what a rank goes on with that comes back. */
#include "compress.h"
#include "error.h"
#include "memory.h"
#include "outer.h"
#include "regroup.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The first that is there. */
static tw_status find_shared(tw_state_source source, void *context, int old_size, const tw_state **state)
{
    *state = NULL;
    for (int old = 0; old < old_size && !*state; old++) TW_TRY(source(context, old, state));
    return *state ? TW_OK : tw_fail(TW_ERROR_ARGUMENT, "no old rank's state is there");
}

static int is_exchange(const char *name)
{
    return strncmp(name, "exchange", strlen("exchange")) == 0;
}

/* Of the sums of another rank's piece, or of none yet. Where it is not there it is zeros, for any number of ranks. The
 * name is what follows the prefix: "exchange0/section/NAME". */
static int is_empty_piece(const char *name, const tw_state_entry *entry)
{
    const char *of_exchange = strchr(name, '/');
    int is_piece = is_exchange(name) && of_exchange && strncmp(of_exchange, "/section/", strlen("/section/")) == 0;
    return is_piece && tw_outer_is_nothing(entry->data, entry->bytes);
}

/* All that begins with the prefix; of what is shared, without what an exchange holds back. */
static tw_status copy_entries(const tw_state *from, const char *prefix, int shared, tw_state *state)
{
    size_t head = strlen(prefix);
    for (size_t i = 0; i < tw_state_count(from); i++) {
        tw_state_entry entry;
        TW_TRY(tw_state_at(from, i, &entry));
        if (strncmp(entry.name, prefix, head) != 0 || (shared && is_exchange(entry.name + head))) continue;
        if (is_empty_piece(entry.name + head, &entry)) continue;
        TW_TRY(tw_state_put(state, entry.name, entry.dtype, entry.dims, entry.shape, entry.data));
    }
    return TW_OK;
}

static tw_status regroup(const tw_outer *plan, const char *exchange, const tw_regrouping *to, tw_state_source source,
                         void *context, const char *prefix, tw_state *state)
{
    char part[1024];
    const tw_state *from;
    TW_TRY(find_shared(source, context, to->old_size, &from));
    TW_TRY(copy_entries(from, prefix, 1, state));
    TW_TRY(tw_outer_forget_own(plan, prefix, state));
    for (size_t f = 0; f < plan->fragment_count && plan->fragments[f].count > 0; f++) {
        const tw_fragment *fragment = &plan->fragments[f];
        TW_TRY(tw_outer_join_exchange(part, sizeof part, prefix, f));
        TW_TRY(tw_reducer_regroup_state(exchange, plan->tensors + fragment->first, fragment->count, to->old_size,
                                        source, context, to->rank, to->size, part, state));
    }
    return TW_OK;
}

/* Nothing is put into `state` unless all of it is. */
static tw_status regroup_apart(const tw_outer *plan, const char *exchange, const tw_regrouping *to,
                               tw_state_source source, void *context, const char *prefix, tw_state *state)
{
    tw_state *made;
    TW_TRY(tw_state_create(&made));
    tw_status status = regroup(plan, exchange, to, source, context, prefix, made);
    if (status == TW_OK) status = copy_entries(made, prefix, 0, state);
    tw_state_destroy(made);
    return status;
}

tw_status tw_outer_regroup_state(const char *spec, const tw_tensor *tensors, size_t count, int old_size,
                                 tw_state_source source, void *context, int rank, int size, const char *prefix,
                                 tw_state *state)
{
    tw_outer *plan;
    char *exchange = NULL;
    tw_regrouping to = {old_size, rank, size};
    TW_TRY(tw_regrouping_check_call(spec, source, prefix, state));
    TW_TRY(tw_regrouping_check(&to));
    TW_TRY(tw_allocate(1, sizeof *plan, &plan));
    tw_status status = tw_outer_describe(plan, spec, tensors, count, &exchange);
    if (status == TW_OK) status = regroup_apart(plan, exchange, &to, source, context, prefix, state);
    tw_free(exchange);
    tw_outer_destroy(plan);
    return status;
}

/* ---- for one that comes back ------------------------------------------------------------------------------------- */

static tw_status read_theta(const tw_tensor *tensor, const char *prefix, const tw_state *from, float *values)
{
    char name[1024];
    size_t length = (size_t)snprintf(name, sizeof name, "%stheta/%s", prefix, tensor->name);
    if (length >= sizeof name) return tw_fail(TW_ERROR_ARGUMENT, "the prefix is too long");
    return tw_state_get(from, name, TW_F32, tw_tensor_count(tensor), values);
}

/* Of all tensors the theta of a state, one after the other. */
static tw_status read_all(const tw_outer *plan, const char *prefix, const tw_state *from, float *values)
{
    for (size_t i = 0; i < plan->count; i++)
        TW_TRY(read_theta(&plan->tensors[i], prefix, from, values + plan->places[i]));
    return TW_OK;
}

static void move(const tw_outer *plan, const float *left, const float *entered, float *const *weights)
{
    for (size_t i = 0; i < plan->count; i++)
        for (size_t k = plan->places[i]; k < plan->places[i + 1]; k++)
            weights[i][k - plan->places[i]] = entered[k] + (weights[i][k - plan->places[i]] - left[k]);
}

static tw_status find_first(void *context, int rank, const tw_state **state)
{
    *state = rank == 0 ? context : NULL;
    return TW_OK;
}

static int is_something(const tw_state *state, const char *name)
{
    int found = 0;
    for (size_t i = 0; i < tw_state_count(state) && !found; i++) {
        tw_state_entry entry;
        found = tw_state_at(state, i, &entry) == TW_OK && strcmp(entry.name, name) == 0 &&
                !tw_outer_is_nothing(entry.data, entry.bytes);
    }
    return found;
}

/* What is the same on all ranks is something in `same`, which has nothing of a rank's own; before the first round it
 * may be nothing on all, as a count of steps is. */
static tw_status bring_held(const tw_state *left, const char *prefix, const tw_state *same, tw_state *entered)
{
    for (size_t i = 0; i < tw_state_count(left); i++) {
        tw_state_entry entry;
        TW_TRY(tw_state_at(left, i, &entry));
        if (strncmp(entry.name, prefix, strlen(prefix)) != 0 || !is_exchange(entry.name + strlen(prefix))) continue;
        if (tw_outer_is_nothing(entry.data, entry.bytes) || is_something(same, entry.name)) continue;
        TW_TRY(tw_state_put(entered, entry.name, entry.dtype, entry.dims, entry.shape, entry.data));
    }
    return TW_OK;
}

/* As it would be for the second of two ranks of which the first has saved, there is nothing of that one's own. */
static tw_status bring(const tw_outer *plan, const char *exchange, const char *prefix, const tw_state *left,
                       tw_state *entered)
{
    static const tw_regrouping second = {.old_size = 2, .rank = 1, .size = 2};
    tw_state *same;
    TW_TRY(tw_state_create(&same));
    tw_status status = regroup(plan, exchange, &second, find_first, (void *)(uintptr_t)left, prefix, same);
    if (status == TW_OK)
        status = bring_held(left, prefix, same, entered);
    else
        tw_log(TW_LOG_WARNING, "what the exchange of one that comes back held back is given up: %s", tw_last_error());
    tw_state_destroy(same);
    return status == TW_ERROR_STATE ? TW_OK : status;
}

/* What a host's exchange holds back is on its first rank alone, and the others have no count of steps. */
static tw_status check_hosts(const char *exchange)
{
    const tw_scheme_ops *ops;
    tw_common_options common = {0};
    TW_TRY(tw_common_options_read(exchange, &ops, &common));
    tw_free(common.dense);
    if (common.per_host == 1) return TW_OK;
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "a rank that comes back does so without its host; the spec must have per_host=1, not per_host=%lld",
                   (long long)common.per_host);
}

static tw_status rebase(const tw_outer *plan, const char *exchange, const char *prefix, const tw_state *left,
                        tw_state *entered, float *const *weights)
{
    float *read;
    if (plan->options.delay > 0)
        return tw_fail(TW_ERROR_UNSUPPORTED, "a rank that comes back has a mean under way, which may have what its "
                                             "weights have; the spec must have delay=0 and eager=off");
    TW_TRY(check_hosts(exchange));
    TW_TRY(tw_outer_check_arrays(plan, weights, "weights"));
    TW_TRY(tw_allocate(2 * plan->elements, sizeof *read, &read));
    tw_status status = read_all(plan, prefix, left, read);
    if (status == TW_OK) status = read_all(plan, prefix, entered, read + plan->elements);
    if (status == TW_OK) status = bring(plan, exchange, prefix, left, entered);
    if (status == TW_OK) move(plan, read, read + plan->elements, weights);
    tw_free(read);
    return status;
}

tw_status tw_outer_rebase(const char *spec, const tw_tensor *tensors, size_t count, const char *prefix,
                          const tw_state *left, tw_state *entered, float *const *weights)
{
    tw_outer *plan;
    char *exchange = NULL;
    TW_TRY(tw_need(spec, "spec"));
    TW_TRY(tw_need(prefix, "prefix"));
    TW_TRY(tw_need(left, "left"));
    TW_TRY(tw_need(entered, "entered"));
    TW_TRY(tw_allocate(1, sizeof *plan, &plan));
    tw_status status = tw_outer_describe(plan, spec, tensors, count, &exchange);
    if (status == TW_OK) status = rebase(plan, exchange, prefix, left, entered, weights);
    tw_free(exchange);
    tw_outer_destroy(plan);
    return status;
}
