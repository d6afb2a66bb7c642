/* What a reducer of another number of workers goes on with. Neither the old workers nor the new ones need to be there:
 * schemes are made for one of each at a time, to know what is remembered and what it means. */
#include "reducer_regroup.h"
#include "error.h"
#include "hosts.h"
#include "memory.h"

/* Whose schemes are made, of the ranks that act for themselves or for their host. */
typedef struct regrouper {
    const char *spec, *prefix;
    const tw_tensor *tensors;
    size_t count;
    tw_regrouping to;
    tw_scheme *scheme;  /* the new rank's */
    int first, is_lost; /* the first old rank that is there, and whether the new rank's own is not */
} regrouper;

static tw_status make(const regrouper *self, int rank, int size, tw_scheme **scheme)
{
    return tw_scheme_create_between(self->spec, self->tensors, self->count, rank, size, scheme);
}

static tw_status take_over(void *context, int old, const tw_state *state)
{
    regrouper *self = context;
    tw_scheme *scheme = NULL;
    if (!state) return TW_OK; /* what it held back is lost */
    if (self->first < 0) self->first = old;
    TW_TRY(make(self, old, self->to.old_size, &scheme));
    tw_status status = tw_scheme_load_state(scheme, self->prefix, state);
    if (status == TW_OK) status = tw_scheme_take_over(self->scheme, scheme, &self->to, old, self->first);
    tw_scheme_destroy(scheme);
    return status;
}

/* As many ranks as before have what they had. */
static tw_status take_own(void *context, int old, const tw_state *state)
{
    regrouper *self = context;
    if (old != self->to.rank) return TW_OK;
    self->is_lost = !state;
    return state ? tw_scheme_load_state(self->scheme, self->prefix, state) : TW_OK;
}

/* From one whose own is lost, what is the same on all ranks is still to be had. */
static tw_status reducer_regroup_take(regrouper *self, int per_host, tw_state_source source, void *context)
{
    int as_many = self->to.size == self->to.old_size;
    TW_TRY(tw_regrouping_each(&self->to, 1, per_host, source, context, as_many ? take_own : take_over, self));
    return self->is_lost ? tw_regrouping_each(&self->to, 1, per_host, source, context, take_over, self) : TW_OK;
}

static tw_status regroup(regrouper *self, int per_host, tw_state_source source, void *context, tw_scheme **scheme)
{
    TW_TRY(make(self, self->to.rank, self->to.size, &self->scheme));
    tw_status status = reducer_regroup_take(self, per_host, source, context);
    if (status == TW_OK) status = tw_scheme_check_remembered(self->scheme, self->prefix);
    if (status == TW_OK)
        *scheme = self->scheme;
    else
        tw_scheme_destroy(self->scheme);
    return status;
}

tw_status tw_reducer_read_per_host(const char *spec, int *per_host)
{
    const tw_scheme_ops *ops;
    tw_common_options options = {0};
    TW_TRY(tw_common_options_read(spec, &ops, &options));
    *per_host = (int)options.per_host;
    tw_free(options.dense);
    return TW_OK;
}

tw_status tw_reducer_regroup_hosts(const char *spec, const tw_tensor *tensors, size_t count, tw_regrouping to,
                                   int per_host, tw_state_source source, void *context, const char *prefix,
                                   tw_scheme **scheme)
{
    regrouper self = {spec, prefix, tensors, count, to, NULL, -1, 0};
    return regroup(&self, per_host, source, context, scheme);
}

tw_status tw_reducer_regroup_state(const char *spec, const tw_tensor *tensors, size_t count, int old_size,
                                   tw_state_source source, void *context, int rank, int size, const char *prefix,
                                   tw_state *state)
{
    int per_host;
    tw_scheme *scheme;
    tw_regrouping to = {old_size, rank, size};
    TW_TRY(tw_regrouping_check_call(spec, source, prefix, state));
    TW_TRY(tw_regrouping_check(&to));
    TW_TRY(tw_reducer_read_per_host(spec, &per_host));
    TW_TRY(tw_hosts_check(old_size, per_host));
    TW_TRY(tw_hosts_check(size, per_host));
    if (rank % per_host != 0) return TW_OK;
    to = (tw_regrouping){old_size / per_host, rank / per_host, size / per_host};
    TW_TRY(tw_reducer_regroup_hosts(spec, tensors, count, to, per_host, source, context, prefix, &scheme));
    tw_status status = tw_scheme_save_state(scheme, prefix, state);
    tw_scheme_destroy(scheme);
    return status;
}
