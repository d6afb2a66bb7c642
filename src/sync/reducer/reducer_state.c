/* Saving and loading what the schemes of a reducer remember. */
#include "error.h"
#include "reducer_host.h"

#include "compress.h"

#include <string.h>

static tw_status check_between_steps(const tw_reducer *reducer)
{
    if (reducer->missing == reducer->count) return TW_OK;
    return tw_fail(TW_ERROR_ORDER, "a step is under way; save and load between steps");
}

static tw_status reducer_state_check_call(const tw_reducer *reducer, const char *prefix, const tw_state *state)
{
    TW_TRY(tw_reducer_need(reducer));
    TW_TRY(tw_need(prefix, "prefix"));
    TW_TRY(tw_need(state, "state"));
    return check_between_steps(reducer);
}

/* Schemes that stand idle remember nothing. */
static size_t working_messages(const tw_reducer *reducer)
{
    return tw_reducer_is_first(reducer) ? reducer->message_count : 0;
}

/* What the messages share is told of the first. */
typedef struct visitor {
    tw_state_visit visit;
    void *context;
    size_t message;
} visitor;

static tw_status visit_once(void *context, const tw_remembered *entry)
{
    const visitor *self = context;
    if (self->message > 0 && strcmp(entry->what, "scheme") == 0) return TW_OK;
    return self->visit(self->context, entry);
}

static tw_status reducer_state_check_visit(const tw_reducer *reducer, tw_state_visit visit, const char *name)
{
    TW_TRY(tw_reducer_need(reducer));
    if (!visit) return tw_fail(TW_ERROR_ARGUMENT, "%s is NULL", name);
    return check_between_steps(reducer);
}

tw_status tw_reducer_visit_state(tw_reducer *reducer, tw_state_visit visit, void *context)
{
    visitor self = {visit, context, 0};
    TW_TRY(reducer_state_check_visit(reducer, visit, "visit"));
    for (; self.message < working_messages(reducer); self.message++)
        TW_TRY(tw_scheme_visit_state(reducer->messages[self.message].scheme, visit_once, &self));
    return TW_OK;
}

tw_status tw_reducer_save_state(tw_reducer *reducer, const char *prefix, tw_state *state)
{
    TW_TRY(reducer_state_check_call(reducer, prefix, state));
    for (size_t m = 0; m < working_messages(reducer); m++)
        TW_TRY(tw_scheme_save_state(reducer->messages[m].scheme, prefix, state));
    return TW_OK;
}

tw_status tw_reducer_check_state(tw_reducer *reducer, const char *prefix, const tw_state *state)
{
    TW_TRY(reducer_state_check_call(reducer, prefix, state));
    for (size_t m = 0; m < working_messages(reducer); m++)
        TW_TRY(tw_scheme_check_state(reducer->messages[m].scheme, prefix, state));
    return TW_OK;
}

tw_status tw_reducer_load_state(tw_reducer *reducer, const char *prefix, const tw_state *state)
{
    TW_TRY(tw_reducer_check_state(reducer, prefix, state)); /* every message, before anything changes */
    for (size_t m = 0; m < working_messages(reducer); m++)
        TW_TRY(tw_scheme_load_state(reducer->messages[m].scheme, prefix, state));
    return TW_OK;
}

tw_status tw_reducer_fill_state(tw_reducer *reducer, tw_state_visit fill, void *context)
{
    tw_state *state = NULL;
    TW_TRY(reducer_state_check_visit(reducer, fill, "fill"));
    TW_TRY(tw_state_create(&state));
    tw_status status = TW_OK;
    for (size_t m = 0; status == TW_OK && m < working_messages(reducer); m++)
        status = tw_scheme_ask_state(reducer->messages[m].scheme, fill, context, state);
    if (status == TW_OK) status = tw_reducer_load_state(reducer, "", state);
    tw_state_destroy(state);
    return status;
}
