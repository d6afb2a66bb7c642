/* Adam's moments, into and out of the state of a reducer. A scheme of one rank, with nothing held back, has those of an
 * AdamW as they are; one of N ranks has a part of what adds up to them. */
#include "error.h"
#include "hosts.h"
#include "reducer_regroup.h"

#include <thinwire/thinwire_by_hand.h>

#include <string.h>

/* A scheme's moments, tensor by tensor, in a walk over what it remembers. */
typedef struct moments {
    tw_walk walk;
    const tw_scheme *scheme;
    const char *what; /* "momentum" or "second_moment" */
    const float *const *put;
    float *const *get;
    size_t found;
} moments;

static tw_status exchange_entry(tw_walk *walk, const tw_remembered *entry)
{
    moments *self = (moments *)walk;
    size_t tensor;
    double part = entry->kind == TW_STATE_ADDS ? 1.0 / self->scheme->size : 1;
    if (strcmp(entry->what, self->what) != 0 || !tw_scheme_find_elements(self->scheme, entry, &tensor)) return TW_OK;
    self->found++;
    for (size_t i = 0; self->put && i < entry->count; i++)
        tw_remembered_put(entry, i, part * self->put[tensor][entry->first + i]);
    for (size_t i = 0; self->get && i < entry->count; i++)
        self->get[tensor][entry->first + i] = (float)tw_remembered_value(entry, i);
    return TW_OK;
}

static tw_status exchange_moments(tw_scheme *scheme, const char *what, const float *const *put, float *const *get)
{
    moments self = {.walk = {.visit = exchange_entry}, .scheme = scheme, .what = what, .put = put, .get = get};
    TW_TRY(tw_scheme_visit(scheme, &self.walk));
    if (self.found == scheme->count) return TW_OK;
    return tw_fail(TW_ERROR_SPEC,
                   "scheme %s has none of Adam's moments: want one that divides by them, as dgc-adam does",
                   scheme->ops->name);
}

static tw_status check_second(const tw_scheme *scheme, const float *const *second)
{
    for (size_t t = 0; t < scheme->count; t++)
        for (size_t i = 0; i < scheme->tensors[t].count; i++)
            if (second[t][i] < 0)
                return tw_fail(TW_ERROR_STATE,
                               "the second moment of '%s' is %g at %zu, and a mean of squares is not below 0",
                               scheme->tensors[t].name, (double)second[t][i], i);
    return TW_OK;
}

static tw_status check_arrays(const tw_tensor *tensors, size_t count, const float *const *first,
                              const float *const *second)
{
    TW_TRY(tw_need(tensors, "tensors"));
    TW_TRY(tw_need(first, "first"));
    TW_TRY(tw_need(second, "second"));
    for (size_t i = 0; i < count; i++)
        if (!first[i] || !second[i])
            return tw_fail(TW_ERROR_ARGUMENT, "%s[%zu] is NULL", first[i] ? "second" : "first", i);
    return TW_OK;
}

static tw_status enter(tw_scheme *scheme, uint64_t steps, const float *const *first, const float *const *second)
{
    TW_TRY(check_second(scheme, second));
    TW_TRY(exchange_moments(scheme, "momentum", first, NULL));
    TW_TRY(exchange_moments(scheme, "second_moment", second, NULL));
    scheme->step = steps;
    if (scheme->ops->take_moments) scheme->ops->take_moments(scheme);
    return TW_OK;
}

tw_status tw_reducer_state_of_moments(const char *spec, const tw_tensor *tensors, size_t count, uint64_t steps,
                                      const float *const *first, const float *const *second, int rank, int size,
                                      const char *prefix, tw_state *state)
{
    int per_host;
    tw_scheme *scheme;
    tw_regrouping place = {size, rank, size};
    TW_TRY(tw_need(spec, "spec"));
    TW_TRY(check_arrays(tensors, count, first, second));
    TW_TRY(tw_need(prefix, "prefix"));
    TW_TRY(tw_need(state, "state"));
    TW_TRY(tw_regrouping_check(&place));
    TW_TRY(tw_reducer_read_per_host(spec, &per_host));
    TW_TRY(tw_hosts_check(size, per_host));
    if (rank % per_host != 0) return TW_OK;
    TW_TRY(tw_scheme_create_between(spec, tensors, count, rank / per_host, size / per_host, &scheme));
    tw_status status = enter(scheme, steps, first, second);
    if (status == TW_OK) status = tw_scheme_check_remembered(scheme, prefix);
    if (status == TW_OK) status = tw_scheme_save_state(scheme, prefix, state);
    tw_scheme_destroy(scheme);
    return status;
}

static tw_status leave(tw_scheme *scheme, uint64_t *steps, float *const *first, float *const *second)
{
    if (scheme->ops->give_moments) scheme->ops->give_moments(scheme);
    TW_TRY(exchange_moments(scheme, "second_moment", NULL, second)); /* which fewer schemes have: all, or nothing */
    TW_TRY(exchange_moments(scheme, "momentum", NULL, first));
    *steps = scheme->step;
    return TW_OK;
}

/* By way of the one rank, or host, that takes over all of them. */
tw_status tw_reducer_moments_of_state(const char *spec, const tw_tensor *tensors, size_t count, int old_size,
                                      tw_state_source source, void *context, const char *prefix, uint64_t *steps,
                                      float *const *first, float *const *second)
{
    int per_host;
    tw_scheme *scheme;
    tw_regrouping to = {old_size, 0, 1};
    TW_TRY(tw_need(spec, "spec"));
    TW_TRY(check_arrays(tensors, count, (const float *const *)first, (const float *const *)second));
    if (!source) return tw_fail(TW_ERROR_ARGUMENT, "source is NULL");
    TW_TRY(tw_need(prefix, "prefix"));
    TW_TRY(tw_need(steps, "steps"));
    TW_TRY(tw_regrouping_check(&to));
    TW_TRY(tw_reducer_read_per_host(spec, &per_host));
    TW_TRY(tw_hosts_check(old_size, per_host));
    to.old_size /= per_host;
    TW_TRY(tw_reducer_regroup_hosts(spec, tensors, count, to, per_host, source, context, prefix, &scheme));
    tw_status status = leave(scheme, steps, first, second);
    tw_scheme_destroy(scheme);
    return status;
}
