/* What the calls on a tw_outer begin with. */
#include "outer.h"

#include "channel.h"
#include "error.h"
#include "held.h"

tw_status tw_outer_need(const tw_outer *outer)
{
    TW_TRY(tw_need(outer, "outer"));
    return tw_comm_need(outer->channel->comm);
}

tw_status tw_outer_need_shared(const tw_outer *outer)
{
    return outer->is_shared ? TW_OK : tw_fail(TW_ERROR_ORDER, "nothing is shared before tw_outer_begin or a load");
}

tw_fragment *tw_outer_current(const tw_outer *outer)
{
    return &outer->fragments[outer->round % outer->fragment_count];
}

tw_status tw_outer_check_arrays(const tw_outer *outer, float *const *arrays, const char *argument)
{
    TW_TRY(tw_need(arrays, argument));
    for (size_t i = 0; i < outer->count; i++)
        if (!arrays[i])
            return tw_fail(TW_ERROR_ARGUMENT, "%s[%zu], of %s, is NULL", argument, i, outer->tensors[i].name);
    return TW_OK;
}
