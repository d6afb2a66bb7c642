/* The messages of one channel: how they are found, and how they end. */
#include "peer.h"

#include <stdlib.h>

static tw_status add_flow(tcp_peer *peer, unsigned channel, tcp_flow **added)
{
    if (peer->flow_count == TCP_MOST_FLOWS)
        return tw_fail(TW_ERROR_UNSUPPORTED,
                       "rank %d has %d channels already, the most there can be over sockets: destroy reducers and "
                       "gossips that are no longer needed before others are made",
                       peer->rank, TCP_MOST_FLOWS);
    tcp_flow *flow = calloc(1, sizeof *flow);
    if (!flow) return tw_fail(TW_ERROR_MEMORY, "no memory for channel %u of rank %d", channel, peer->rank);
    flow->peer = peer;
    flow->channel = channel;
    flow->next = peer->bucket[channel % TCP_BUCKETS];
    flow->other = peer->flows;
    peer->bucket[channel % TCP_BUCKETS] = peer->flows = flow;
    peer->flow_count++;
    *added = flow;
    return TW_OK;
}

tw_status tcp_flow_of(tcp_peer *peer, unsigned channel, tcp_flow **found)
{
    tcp_flow *flow = peer->bucket[channel % TCP_BUCKETS];
    while (flow && flow->channel != channel) flow = flow->next;
    if (!flow) return add_flow(peer, channel, found);
    *found = flow;
    return TW_OK;
}

/* ---- the end of one --------------------------------------------------------------------------------------------- */

void tcp_request_end(tcp_request *request, tcp_outcome outcome)
{
    request->outcome = outcome;
    if (request->awaited) request->peer->wake = 1;
}

void tcp_receive_end(tcp_slot *slot, tcp_outcome outcome)
{
    tcp_request *receive = slot->receive;
    slot->receive = NULL;
    receive->size = slot->size;
    receive->check = slot->check;
    tcp_request_end(receive, outcome);
}

void tcp_flow_pop(tcp_flow *flow)
{
    flow->first = flow->first->next;
    if (!flow->first) flow->last = NULL;
    flow->offered = 0;
}

void tcp_send_end(tcp_request *send, tcp_outcome outcome)
{
    if (!send->orphan) {
        tcp_request_end(send, outcome);
        return;
    }
    free(send->rest);
    free(send);
}

/* ---- the end of all --------------------------------------------------------------------------------------------- */

static void fail_receives(tcp_flow *flow)
{
    for (tcp_slot *slot = flow->front; slot; slot = slot->next)
        if (slot->receive) tcp_receive_end(slot, TCP_FAILED);
}

static void fail_under_way(tcp_flow *flow)
{
    tcp_peer *peer = flow->peer;
    for (int s = 0; s < peer->streams; s++)
        for (int i = 0; i < peer->stream[s].out_count; i++) {
            tcp_outgoing *frame = &peer->stream[s].out[(peer->stream[s].out_first + i) % TCP_BATCH];
            tcp_request *send = frame->message;
            if (!send || send->flow != flow) continue;
            frame->message = NULL; /* it may be freed before the other flows look here */
            if (--send->frames || send->given < send->size) continue;
            tcp_send_end(send, TCP_FAILED);
        }
}

/* Of those that are in frames, the last frame ends them; one that has more bytes to give is the first of its flow. */
static void fail_sends(tcp_flow *flow)
{
    fail_under_way(flow);
    while (flow->first) {
        tcp_request *send = flow->first;
        tcp_flow_pop(flow);
        tcp_send_end(send, TCP_FAILED);
    }
}

void tcp_flow_fail(tcp_flow *flow)
{
    fail_receives(flow);
    fail_sends(flow);
}

static void free_slots(tcp_flow *flow)
{
    for (tcp_slot *slot = flow->front, *next; slot; slot = next) {
        next = slot->next;
        free(slot->kept);
        free(slot);
    }
}

static void free_permits(tcp_flow *flow)
{
    for (tcp_permit *permit = flow->permits, *next; permit; permit = next) {
        next = permit->next;
        free(permit);
    }
}

void tcp_flow_free(tcp_flow *flow)
{
    free_slots(flow);
    free_permits(flow);
    free(flow);
}
