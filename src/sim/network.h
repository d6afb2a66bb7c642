/* network.h - how long a message takes between the hosts of a world.
 *
 * Each host has one full-duplex line to a switch that never blocks. A message waits for its turn on the sender's
 * outgoing line, holds it for the overhead and for size / bandwidth, and its bits follow one another through the switch
 * (cut-through), a latency behind: on an idle path it takes overhead + latency + size / bandwidth, the transfer counted
 * once. At the receiver it waits for its turn on the incoming line, in the order in which first bits come, and holds it
 * for size / bandwidth_down. Where that is less than its sender took, its bits come as slowly as they were sent, and
 * the line has room for those of others in between. Nothing a receiver does slows a sender down: the switch and the
 * receiver have room for all. */
#ifndef TW_COMM_NETWORK_H
#define TW_COMM_NETWORK_H

#include <thinwire/thinwire_sim.h>

#include "virtual.h"

/* A message on its way; lives in what it carries. */
typedef struct tw_parcel {
    struct tw_parcel *behind; /* on the sender's line */
    int from, to;             /* hosts */
    size_t size;
    double departed; /* when its last bit is out */
    double reaches;  /* when its first bit is at the receiver's line */
    double arrived;  /* when its last bit is there; INFINITY until its turn has come */
} tw_parcel;

typedef struct tw_network tw_network;

typedef struct tw_line {
    tw_timer timer; /* the first parcel's first bit reaches its receiver */
    tw_network *network;
    tw_parcel *first, *last;
    double outgoing_until, incoming_until; /* busy */
} tw_line;

struct tw_network {
    tw_virtual *clock;
    double bandwidth, bandwidth_down, latency, overhead;
    int hosts;
    tw_line *lines;                                         /* one a host */
    void (*arrive)(tw_network *network, tw_parcel *parcel); /* its `arrived` is known now; it may lie ahead */
};

/* clock, both bandwidths, latency, overhead, hosts and arrive are set. */
tw_status tw_network_create_lines(tw_network *network);
void tw_network_free_lines(tw_network *network);

/* from, to and size are set; sets the rest. Within a host a message has arrived at once, and nothing calls arrive. */
void tw_network_send(tw_network *network, tw_parcel *parcel);

#endif
