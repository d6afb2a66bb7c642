/* Option per_host: inside a host a step's gradients are averaged, so that its ranks are one to the outer loop. */
#include "outer.h"

#include "channel.h"
#include "error.h"
#include "kernels.h"
#include "reducer.h"

/* The exchange has made it; NULL: each rank is a host. */
static tw_comm *outer_host_of(const tw_outer *outer)
{
    return outer->fragments[0].reducer->host.members;
}

/* How many tensors from `first` on lie one behind the other: they travel together. */
static size_t outer_host_run(const tw_outer *outer, float *const *gradients, size_t first)
{
    size_t next = first + 1;
    while (next < outer->count && gradients[next] == gradients[first] + (outer->places[next] - outer->places[first]))
        next++;
    return next - first;
}

static tw_status outer_host_average(tw_outer *outer, tw_comm *host, float *const *gradients)
{
    for (size_t i = 0, run; i < outer->count; i += run) {
        run = outer_host_run(outer, gradients, i);
        const size_t elements = outer->places[i + run] - outer->places[i];
        tw_kernels_best()->scale(gradients[i], 1.0f / (float)tw_comm_size(host), elements);
        TW_TRY(tw_comm_allreduce(host, gradients[i], elements));
    }
    return TW_OK;
}

tw_status tw_outer_average(tw_outer *outer, float *const *gradients)
{
    TW_TRY(tw_outer_need(outer));
    TW_TRY(tw_outer_check_arrays(outer, gradients, "gradients"));
    TW_TRY(tw_channel_check(outer->channel));
    tw_comm *host = outer_host_of(outer);
    if (!host) return TW_OK;
    const double begun = tw_clock();
    outer->alike = tw_comm_size(host);
    tw_status status = outer_host_average(outer, host, gradients);
    outer->stats.seconds_wait += tw_clock() - begun;
    return status;
}

tw_traffic tw_outer_host_traffic(const tw_outer *outer)
{
    tw_comm *host = outer_host_of(outer);
    return host ? tw_channel_traffic(host->channel) : (tw_traffic){0};
}
