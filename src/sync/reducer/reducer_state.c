/* Saving and loading what the schemes of a reducer remember. */
#include "error.h"
#include "reducer_host.h"

#include "compress.h"

static tw_status check_call(const tw_reducer *reducer, const char *prefix, const tw_state *state)
{
    TW_TRY(tw_need(reducer, "reducer"));
    TW_TRY(tw_need(prefix, "prefix"));
    TW_TRY(tw_need(state, "state"));
    if (reducer->missing == reducer->count) return TW_OK;
    return tw_fail(TW_ERROR_ORDER, "a step is under way; save and load between steps");
}

/* Schemes that stand idle remember nothing. */
static size_t working_messages(const tw_reducer *reducer)
{
    return tw_reducer_is_first(reducer) ? reducer->message_count : 0;
}

tw_status tw_reducer_save_state(tw_reducer *reducer, const char *prefix, tw_state *state)
{
    TW_TRY(check_call(reducer, prefix, state));
    for (size_t m = 0; m < working_messages(reducer); m++)
        TW_TRY(tw_scheme_save_state(reducer->messages[m].scheme, prefix, state));
    return TW_OK;
}

tw_status tw_reducer_load_state(tw_reducer *reducer, const char *prefix, const tw_state *state)
{
    TW_TRY(check_call(reducer, prefix, state));
    for (size_t m = 0; m < working_messages(reducer); m++) /* every message, before anything changes */
        TW_TRY(tw_scheme_check_state(reducer->messages[m].scheme, prefix, state));
    for (size_t m = 0; m < working_messages(reducer); m++)
        TW_TRY(tw_scheme_load_state(reducer->messages[m].scheme, prefix, state));
    return TW_OK;
}
