#include "line.h"
#include "error.h"
#include <math.h>
#include <stdlib.h>

#define STREAM_SECONDS 0.15
enum { TURNS = 2 }; /* the better counts, as a busy neighbour makes no line faster */

/* A member's own line is as fast as the fastest stream that went through it, with both directions at work; the other
 * end may have been the slower one. */
static double line_of(const peers_report *found, int rank, int towards)
{
    double rate = 0;
    for (int other = 0; other < found->size; other++) {
        const link_figures *link = towards ? &found->links[other][rank] : &found->links[rank][other];
        if (other != rank) rate = fmax(rate, fmin(link->rate, link->rate_both));
    }
    return rate;
}

static double middle_latency(const peers_report *found)
{
    double all[PEERS_MOST * PEERS_MOST] = {0}, median, worst;
    size_t count = 0;
    for (int from = 0; from < found->size; from++)
        for (int to = 0; to < found->size; to++)
            if (from != to) all[count++] = found->links[from][to].median;
    link_order_times(all, count, &median, &worst);
    return median;
}

void line_conclude(const peers_report *found, tw_world_options *world)
{
    double up = (double)INFINITY, down = (double)INFINITY, latency = middle_latency(found);
    for (int rank = 0; rank < found->size; rank++) {
        up = fmin(up, line_of(found, rank, 0));
        down = fmin(down, line_of(found, rank, 1));
    }
    world->bandwidth = fmax(world->bandwidth, up);
    world->bandwidth_down = fmax(world->bandwidth_down, down);
    world->latency = world->latency > 0 ? fmin(world->latency, latency) : latency;
}

tw_status line_measure(tw_comm *comm, double timeout, tw_world_options *world)
{
    const peers_settings how = {.timeout = timeout, .seconds = STREAM_SECONDS, .counters = INTERFACE_COUNTERS};
    peers_report *found = malloc(sizeof *found);
    tw_status status = found ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory to measure lines with");
    world->bandwidth = world->bandwidth_down = world->latency = 0;
    for (int turn = 0; turn < TURNS && status == TW_OK; turn++) {
        status = peers_measure(comm, &how, found);
        if (status == TW_OK) line_conclude(found, world);
    }
    free(found);
    return status;
}
