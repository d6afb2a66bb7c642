/* Option per_host: inside a host a step's gradients are averaged, so that its ranks are one to the outer loop. */
#include "outer.h"

#include "channel.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "reducer.h"

#include <string.h>

/* The exchange has made it; NULL: each rank is a host. */
static tw_comm *outer_host_of(const tw_outer *outer)
{
    return outer->fragments[0].reducer->host.members;
}

static int outer_host_adjoin(const tw_outer *outer, float *const *gradients)
{
    for (size_t i = 1; i < outer->count; i++)
        if (gradients[i] != gradients[0] + outer->places[i]) return 0;
    return 1;
}

static void outer_host_copy(const tw_outer *outer, float *const *from, float *const *to)
{
    for (size_t i = 0; i < outer->count; i++)
        memcpy(to[i], from[i], (outer->places[i + 1] - outer->places[i]) * sizeof(float));
}

static tw_status outer_host_sum(const tw_outer *outer, tw_comm *host, float *values)
{
    const size_t elements = outer->places[outer->count];
    tw_kernels_best()->scale(values, 1.0f / (float)tw_comm_size(host), elements);
    return tw_comm_allreduce(host, values, elements);
}

/* In one message, wherever a rank has its tensors: what ranks send each other must be as long. */
static tw_status outer_host_average(const tw_outer *outer, tw_comm *host, float *const *gradients)
{
    float **packed, *values;
    if (outer_host_adjoin(outer, gradients)) return outer_host_sum(outer, host, gradients[0]);
    tw_status status =
        tw_allocate(1, outer->count * sizeof *packed + outer->places[outer->count] * sizeof *values, &packed);
    if (status != TW_OK) return tw_channel_give_up(host->channel, status); /* the others of the host take part */
    values = (float *)(packed + outer->count);
    for (size_t i = 0; i < outer->count; i++) packed[i] = values + outer->places[i];
    outer_host_copy(outer, gradients, packed);
    status = outer_host_sum(outer, host, values);
    if (status == TW_OK) outer_host_copy(outer, packed, gradients);
    tw_free(packed);
    return status;
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
