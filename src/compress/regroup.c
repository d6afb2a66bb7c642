#include "regroup.h"

#include "error.h"
#include "half.h"
#include "state.h"

#include <stdio.h>
#include <string.h>

/* ---- the line ---------------------------------------------------------------------------------------------------- */

tw_status tw_regrouping_check(const tw_regrouping *to)
{
    if (to->old_size < 1 || to->old_size > TW_MOST_RANKS)
        return tw_fail(TW_ERROR_ARGUMENT, "%d old ranks; there are 1 to %d", to->old_size, TW_MOST_RANKS);
    if (to->size < 1 || to->size > TW_MOST_RANKS || to->rank < 0 || to->rank >= to->size)
        return tw_fail(TW_ERROR_ARGUMENT, "rank %d of %d: there are 1 to %d ranks, numbered from 0", to->rank, to->size,
                       TW_MOST_RANKS);
    return TW_OK;
}

tw_status tw_regrouping_check_call(const char *spec, tw_state_source source, const char *prefix, const tw_state *state)
{
    TW_TRY(tw_need(spec, "spec"));
    if (!source) return tw_fail(TW_ERROR_ARGUMENT, "source is NULL");
    TW_TRY(tw_need(prefix, "prefix"));
    return tw_need(state, "state");
}

/* What it has in common with an old rank; an old one is `size` long, the new one `old_size`. */
static int64_t common_with(const tw_regrouping *to, int old)
{
    int64_t begin = (int64_t)to->rank * to->old_size, end = begin + to->old_size;
    int64_t old_begin = (int64_t)old * to->size, old_end = old_begin + to->size;
    int64_t first = begin > old_begin ? begin : old_begin, last = end < old_end ? end : old_end;
    return last > first ? last - first : 0;
}

/* The first old rank that it has something in common with: whose place it takes. */
static int origin_of(const tw_regrouping *to)
{
    return (int)((int64_t)to->rank * to->old_size / to->size);
}

/* What it has in common with the old ranks up to this one. */
static int64_t common_so_far(const tw_regrouping *to, int old)
{
    int64_t begin = (int64_t)to->rank * to->old_size, end = begin + to->old_size;
    int64_t reached = ((int64_t)old + 1) * to->size;
    return (reached < end ? reached : end) - begin;
}

void tw_regrouping_average(const tw_regrouping *to, int old, const float *values, size_t count, float *dst)
{
    int64_t common = common_with(to, old);
    double part = common ? (double)common / (double)common_so_far(to, old) : 0;
    if (part == 1) memcpy(dst, values, count * sizeof *dst);
    for (size_t i = 0; part > 0 && part < 1 && i < count; i++)
        dst[i] = (float)(dst[i] + part * ((double)values[i] - dst[i]));
}

/* ---- what a scheme takes over ------------------------------------------------------------------------------------ */

typedef struct finder {
    tw_walk walk;
    const char *what, *tensor;
    int is_found;
    tw_remembered found;
} finder;

static tw_status find_entry(tw_walk *walk, const tw_remembered *entry)
{
    finder *self = (finder *)walk;
    if (strcmp(entry->what, self->what) != 0 || strcmp(entry->tensor, self->tensor) != 0) return TW_OK;
    self->is_found = 1;
    self->found = *entry;
    return TW_OK;
}

static int find(tw_scheme *scheme, const char *what, const char *tensor, tw_remembered *found)
{
    finder self = {.walk = {.visit = find_entry}, .what = what, .tensor = tensor};
    tw_status status = tw_scheme_visit(scheme, &self.walk);
    *found = self.found;
    return status == TW_OK && self.is_found;
}

static size_t bytes_of(const tw_remembered *entry)
{
    return entry->count * tw_dtypes[entry->dtype].bytes;
}

/* One old rank's, on its way. */
typedef struct taker {
    tw_walk walk;
    tw_scheme *scheme;
    const tw_regrouping *to;
    int old, first;
} taker;

static tw_status regroup_refuse(const tw_remembered *entry, const taker *self)
{
    return tw_fail(TW_ERROR_STATE, "%s/%s has no place among %d ranks, where the tensor is exchanged in another way",
                   entry->what, entry->tensor, self->to->size);
}

static tw_status copy_over(const taker *self, const tw_remembered *entry)
{
    tw_remembered place;
    if (!find(self->scheme, entry->what, entry->tensor, &place) || place.kind != entry->kind ||
        place.dtype != entry->dtype || place.count != entry->count)
        return regroup_refuse(entry, self);
    memcpy(place.data, entry->data, bytes_of(entry));
    return TW_OK;
}

static tw_status compare(const taker *self, const tw_remembered *entry)
{
    tw_remembered place;
    if (!find(self->scheme, entry->what, entry->tensor, &place)) return regroup_refuse(entry, self);
    if (place.dtype == entry->dtype && place.count == entry->count &&
        memcmp(place.data, entry->data, bytes_of(entry)) == 0)
        return TW_OK;
    return tw_fail(TW_ERROR_STATE, "%s/%s is not what rank %d has there, though it is the same on all ranks of a run",
                   entry->what, entry->tensor, self->first);
}

static int is_nothing(const tw_remembered *entry)
{
    int nothing = 1;
    for (size_t i = 0; i < entry->count; i++) nothing &= tw_remembered_value(entry, i) == 0;
    return nothing;
}

/* Where what adds goes: where it was; a piece, which has another place among other ranks, to what it joins. */
static int find_place(const taker *self, const tw_remembered *entry, tw_remembered *place)
{
    if (!entry->is_piece && find(self->scheme, entry->what, entry->tensor, place)) return 1;
    return entry->joins && find(self->scheme, entry->joins, entry->tensor, place);
}

static int regroup_holds(const tw_remembered *place, const tw_remembered *entry)
{
    return place->kind == TW_STATE_ADDS && place->dtype == entry->dtype && !place->is_piece &&
           entry->first <= place->count && entry->count <= place->count - entry->first;
}

static void add_floats(const tw_remembered *entry, double part, float *dst)
{
    const float *values = entry->data;
    for (size_t i = 0; i < entry->count; i++) dst[i] += (float)(part * values[i]);
}

static void add_doubles(const tw_remembered *entry, double part, double *dst)
{
    const double *values = entry->data;
    for (size_t i = 0; i < entry->count; i++) dst[i] += part * values[i];
}

static void add_halves(const tw_remembered *entry, double part, uint16_t *dst)
{
    for (size_t i = 0; i < entry->count; i++)
        dst[i] = tw_to_bf16((float)(tw_from_bf16(dst[i]) + part * tw_remembered_value(entry, i)));
}

static tw_status regroup_add(const taker *self, const tw_remembered *entry)
{
    double part = (double)common_with(self->to, self->old) / self->to->size;
    tw_remembered place;
    if (part == 0 || is_nothing(entry)) return TW_OK;
    if (!find_place(self, entry, &place)) return entry->is_rounding ? TW_OK : regroup_refuse(entry, self);
    if (!regroup_holds(&place, entry)) return regroup_refuse(entry, self);
    if (entry->dtype == TW_F64)
        add_doubles(entry, part, (double *)place.data + entry->first);
    else if (entry->dtype == TW_BF16)
        add_halves(entry, part, (uint16_t *)place.data + entry->first);
    else
        add_floats(entry, part, (float *)place.data + entry->first);
    return TW_OK;
}

static tw_status regroup_average(const taker *self, const tw_remembered *entry)
{
    tw_remembered place;
    if (!find(self->scheme, entry->what, entry->tensor, &place) || place.count != entry->count ||
        place.dtype != TW_F32 || entry->dtype != TW_F32)
        return regroup_refuse(entry, self);
    tw_regrouping_average(self->to, self->old, entry->data, entry->count, place.data);
    return TW_OK;
}

static tw_status regroup_take(tw_walk *walk, const tw_remembered *entry)
{
    const taker *self = (const taker *)walk;
    switch (entry->kind) {
    case TW_STATE_ADDS:
        return tw_remembered_adds_up(entry) ? regroup_add(self, entry) : regroup_refuse(entry, self);
    case TW_STATE_SAME:
        return self->old == self->first ? copy_over(self, entry) : compare(self, entry);
    case TW_STATE_OWN:
        return self->old == origin_of(self->to) ? copy_over(self, entry) : TW_OK;
    case TW_STATE_AVERAGES:
        return regroup_average(self, entry);
    }
    return regroup_refuse(entry, self);
}

tw_status tw_scheme_take_over(tw_scheme *scheme, tw_scheme *old_scheme, const tw_regrouping *to, int old, int first)
{
    taker self = {.walk = {.visit = regroup_take}, .scheme = scheme, .to = to, .old = old, .first = first};
    return tw_scheme_visit(old_scheme, &self.walk);
}

/* ---- the old ranks ----------------------------------------------------------------------------------------------- */

static tw_status take_from(const tw_regrouping *to, int old, int stride, tw_state_source source, void *context,
                           tw_status (*take_state)(void *taker, int old, const tw_state *state), void *receiver,
                           int *any)
{
    char place[96];
    const tw_state *state = NULL;
    TW_TRY(source(context, old * stride, &state));
    tw_status status = take_state(receiver, old, state);
    *any |= state != NULL;
    snprintf(place, sizeof place, "rank %d of the %d before", old * stride, to->old_size * stride);
    return status == TW_OK ? TW_OK : tw_fail_in(status, place);
}

static int matters(const tw_regrouping *to, size_t count, int old)
{
    int any = 0;
    for (size_t i = 0; i < count; i++) any |= common_with(&to[i], old) > 0;
    return any;
}

tw_status tw_regrouping_each(const tw_regrouping *to, size_t count, int stride, tw_state_source source, void *context,
                             tw_status (*take_state)(void *taker, int old, const tw_state *state), void *receiver)
{
    int any = 0;
    for (int old = 0; old < to->old_size; old++)
        if (!any || matters(to, count, old))
            TW_TRY(take_from(to, old, stride, source, context, take_state, receiver, &any));
    return any ? TW_OK : tw_fail(TW_ERROR_ARGUMENT, "there is no state of any of the ranks before");
}
