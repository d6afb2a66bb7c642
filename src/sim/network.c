#include "network.h"

#include "error.h"
#include "memory.h"

#include <math.h>
#include <stddef.h>

static double transfer_seconds(double bandwidth, size_t size)
{
    return bandwidth > 0 ? (double)size / bandwidth : 0;
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

static void expect_first(tw_line *line)
{
    if (line->first) tw_timers_arm(tw_virtual_timers(line->network->clock), &line->timer, line->first->reaches);
}

static void take_incoming(tw_network *network, tw_parcel *parcel)
{
    tw_line *line = &network->lines[parcel->to];
    double down = transfer_seconds(network->bandwidth_down, parcel->size);
    line->incoming_until = parcel->arrived = later(parcel->reaches, line->incoming_until) + down;
    if (down < transfer_seconds(network->bandwidth, parcel->size))
        parcel->arrived = later(parcel->arrived, parcel->departed + network->latency);
}

static void reach(tw_timer *timer)
{
    tw_line *line = (tw_line *)(void *)((char *)timer - offsetof(tw_line, timer));
    tw_parcel *parcel = line->first;
    line->first = parcel->behind;
    expect_first(line);
    take_incoming(line->network, parcel);
    line->network->arrive(line->network, parcel);
}

void tw_network_send(tw_network *network, tw_parcel *parcel)
{
    double now = tw_virtual_now(network->clock);
    if (parcel->from == parcel->to) {
        parcel->departed = parcel->reaches = parcel->arrived = now;
        return;
    }
    tw_line *line = &network->lines[parcel->from];
    double first_bit = later(now, line->outgoing_until) + network->overhead;
    line->outgoing_until = parcel->departed = first_bit + transfer_seconds(network->bandwidth, parcel->size);
    parcel->reaches = first_bit + network->latency;
    parcel->arrived = (double)INFINITY;
    parcel->behind = NULL;
    *(line->first ? &line->last->behind : &line->first) = parcel;
    line->last = parcel;
    if (line->first == parcel) expect_first(line);
}

tw_status tw_network_create_lines(tw_network *network)
{
    size_t hosts = (size_t)network->hosts;
    TW_TRY(tw_timers_reserve(tw_virtual_timers(network->clock), hosts));
    TW_TRY(tw_allocate(hosts, sizeof *network->lines, &network->lines));
    for (size_t h = 0; h < hosts; h++) network->lines[h] = (tw_line){.timer = {.fire = reach}, .network = network};
    return TW_OK;
}

void tw_network_free_lines(tw_network *network)
{
    tw_free(network->lines);
}
