/* What a plan reads in specs, and adds to them. */
#include "error.h"
#include "gossip_registry.h"
#include "matrix.h"
#include "memory.h"
#include "outer.h"
#include "plan.h"
#include "reducer.h"
#include "registry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 64 };

tw_status tw_spec_kind(const char *spec, tw_plan_kind *kind)
{
    char name[NAME];
    const tw_outer_method *method;
    const tw_gossip_ops *gossip;
    TW_TRY(tw_spec_name(spec, name, sizeof name));
    *kind = TW_PLAN_GRADIENTS;
    if (tw_scheme_by_name(name)) return TW_OK;
    *kind = TW_PLAN_UPDATES;
    if (tw_outer_find(spec, &method) == TW_OK) return TW_OK;
    *kind = TW_PLAN_WEIGHTS;
    if (tw_gossip_find(spec, &gossip) == TW_OK) return TW_OK;
    return tw_fail(TW_ERROR_SPEC, "there is no scheme and no method of local updates \"%s\"", name);
}

/* ---- one option -------------------------------------------------------------------------------------------------- */

/* What stands behind "option=" in the spec, and how long that is; NULL where the spec does not set it. */
static const char *find_value(const char *spec, const char *option, size_t *length)
{
    size_t key = strlen(option);
    for (const char *at = strpbrk(spec, ":"); at; at = strchr(at + 1, ',')) {
        if (strncmp(at + 1, option, key) != 0 || at[1 + key] != '=') continue;
        *length = strcspn(at + key + 2, ",");
        return at + key + 2;
    }
    return NULL;
}

static int fallback_of(const char *name, const char *option, size_t count, const char *(*name_at)(size_t),
                       tw_status (*tell)(size_t, size_t, tw_option_info *), double *number)
{
    tw_option_info info = {.struct_size = sizeof info};
    for (size_t index = 0; index < count; index++)
        for (size_t i = 0; strcmp(name_at(index), name) == 0 && tell(index, i, &info) == TW_OK; i++)
            if (strcmp(info.name, option) == 0) {
                *number = tw_decimal_read(info.fallback, NULL);
                return 1;
            }
    return 0;
}

double tw_spec_number(const char *spec, const char *option)
{
    char name[NAME];
    size_t length;
    double number;
    const char *value = find_value(spec, option, &length);
    if (tw_spec_name(spec, name, sizeof name) != TW_OK) return NAN;
    if (!fallback_of(name, option, tw_schemes_count(), tw_schemes_name, tw_schemes_option, &number) &&
        !fallback_of(name, option, tw_outers_count(), tw_outers_name, tw_outers_option, &number))
        return NAN;
    return value ? tw_decimal_read(value, NULL) : number;
}

tw_status tw_spec_with(const char *spec, const char *option, const char *value, char **with)
{
    size_t length = 0, room = strlen(spec) + strlen(option) + strlen(value) + 3;
    const char *old = find_value(spec, option, &length);
    TW_TRY(tw_allocate(room, 1, with));
    if (old)
        snprintf(*with, room, "%.*s%s%s", (int)(old - spec), spec, value, old + length);
    else
        snprintf(*with, room, "%s%c%s=%s", spec, strchr(spec, ':') ? ',' : ':', option, value);
    return TW_OK;
}

/* ---- the size of messages ---------------------------------------------------------------------------------------- */

/* The scheme that carries what the spec exchanges; NULL where a gossip carries weights. */
static tw_status carrier_of(const char *spec, const tw_scheme_ops **ops)
{
    tw_plan_kind kind;
    const tw_outer_method *method;
    tw_outer_options options = {0};
    char *exchange;
    *ops = NULL;
    TW_TRY(tw_spec_kind(spec, &kind));
    if (kind == TW_PLAN_WEIGHTS) return TW_OK;
    if (kind == TW_PLAN_GRADIENTS) return tw_scheme_find(spec, ops);
    TW_TRY(tw_outer_find(spec, &method));
    TW_TRY(tw_outer_parse(method, spec, &options, &exchange));
    tw_status status = tw_scheme_find(exchange, ops);
    tw_free(exchange);
    return status;
}

tw_status tw_spec_carrier(const char *spec, const char **name)
{
    const tw_scheme_ops *ops;
    TW_TRY(carrier_of(spec, &ops));
    *name = ops ? ops->name : NULL;
    return TW_OK;
}

tw_status tw_spec_without_warmup(const char *spec, char **without)
{
    const tw_scheme_ops *ops;
    double steps;
    TW_TRY(carrier_of(spec, &ops));
    if (!ops || !fallback_of(ops->name, "warmup_steps", tw_schemes_count(), tw_schemes_name, tw_schemes_option, &steps))
        return tw_copy_string(spec, without);
    return tw_spec_with(spec, "warmup_steps", "0", without);
}

/* What a low-rank scheme sends of the tensors: of a matrix its factors, where they are smaller. */
static double values_of_rank(size_t rank, const tw_tensor *tensors, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        size_t values = tw_tensor_count(&tensors[i]), rows = tensors[i].dims ? tensors[i].shape[0] : 1;
        size_t worthwhile = tw_matrix_rank(rank, rows, values / rows);
        sum += (double)(worthwhile ? worthwhile * (rows + values / rows) : values);
    }
    return sum;
}

tw_status tw_spec_times(const char *spec, const tw_tensor *tensors, size_t count, const tw_thin *thin, double *times)
{
    const tw_scheme_ops *ops;
    double rank;
    size_t length;
    *times = thin->times;
    TW_TRY(carrier_of(spec, &ops));
    if (!ops || !fallback_of(ops->name, "rank", tw_schemes_count(), tw_schemes_name, tw_schemes_option, &rank))
        return TW_OK;
    const char *set = find_value(spec, "rank", &length);
    if (set) rank = tw_decimal_read(set, NULL);
    *times = values_of_rank((size_t)rank, tensors, count) / values_of_rank((size_t)rank, thin->tensors, thin->count);
    return TW_OK;
}

tw_status tw_spec_with_smaller_messages(const char *spec, const tw_tensor *tensors, size_t count, double times,
                                        char **with)
{
    char kilobytes[32];
    size_t length;
    const tw_scheme_ops *ops;
    TW_TRY(carrier_of(spec, &ops));
    const char *set = find_value(spec, "message_kb", &length);
    double bytes = set   ? 1024 * tw_decimal_read(set, NULL)
                   : ops ? (double)tw_reducer_least_message(ops, tensors, count)
                         : 0;
    if (!ops || times == 1) return tw_copy_string(spec, with);
    snprintf(kilobytes, sizeof kilobytes, "%.0f", fmax(1, round(bytes / times / 1024)));
    return tw_spec_with(spec, "message_kb", kilobytes, with);
}
