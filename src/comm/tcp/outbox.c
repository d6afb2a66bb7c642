/* Messages that go, and which frame is next: headers alone first, then a piece of each flow that may send, in turn. */
#include "peer.h"

#include <stdlib.h>
#include <string.h>

#include <thinwire/thinwire_plugin.h>

#define LOOKS_UP 1.0 /* seconds, between two waits of a program that waits */

static int is_small(const tcp_request *send)
{
    return send->size <= send->peer->eager;
}

/* --- the first of a flow ------------------------------------------------------------------------------------- */

static void set_offer_due(tcp_flow *flow, int due)
{
    flow->peer->controls += (size_t)due - (size_t)flow->offer_due;
    flow->offer_due = due;
}

/* That of the message that begins next; NULL: none has come. */
static const tcp_permit *permit_of(tcp_flow *flow)
{
    while (flow->permits && flow->permits->seq < flow->sent_seq) {
        tcp_permit *old = flow->permits;
        flow->permits = old->next;
        free(old);
        flow->peer->permits--;
    }
    return flow->permits && flow->permits->seq == flow->sent_seq ? flow->permits : NULL;
}

static int waits_for_permit(const tcp_flow *flow)
{
    return flow->first && !flow->first->begun && !is_small(flow->first);
}

/* There is nothing to send of it: its receiver has less room. */
static void skip_first(tcp_flow *flow)
{
    tcp_request *send = flow->first;
    tcp_flow_pop(flow);
    flow->sent_seq++;
    tcp_request_end(send, TCP_DONE);
}

/* Its receiver has less room, and learns or has learnt it from the offer. */
static int is_declined(tcp_flow *flow)
{
    const tcp_permit *permit = waits_for_permit(flow) ? permit_of(flow) : NULL;
    return permit && permit->size < flow->first->size;
}

/* A correction stays due. */
static void take_back_offer(tcp_flow *flow)
{
    if (flow->corrects) return;
    if (flow->offer_due) flow->offered = 0;
    set_offer_due(flow, 0);
}

/* After the first, or what is known of it, has changed. */
static void consider_first(tcp_flow *flow)
{
    while (is_declined(flow) && flow->offered && !flow->offer_due) skip_first(flow);
    int waits = waits_for_permit(flow) && !permit_of(flow);
    if (!waits) {
        take_back_offer(flow);
    } else if (!flow->offered) {
        flow->offered = 1;
        set_offer_due(flow, 1);
    }
}

static int may_send(tcp_flow *flow)
{
    const tcp_request *send = flow->first;
    if (!send || flow->corrects) return 0; /* it could overtake the correction by another connection */
    if (send->begun) return 1;
    if (!is_small(send)) return permit_of(flow) != NULL;
    return flow->owed == 0 || flow->owed + send->size + TCP_MESSAGE_COST <= flow->peer->window;
}

/* --- posting and taking back ---------------------------------------------------------------------------------- */

void tcp_outbox_post(tcp_flow *flow, tcp_request *send)
{
    send->flow = flow;
    send->next = NULL;
    if (flow->last)
        flow->last->next = send;
    else
        flow->first = send;
    flow->last = send;
    if (flow->first == send) consider_first(flow);
}

/* A receiver that has heard of it hears that the next with its number is another. */
static void replace_first(tcp_flow *flow)
{
    flow->corrects |= flow->offered && !flow->offer_due;
    set_offer_due(flow, flow->corrects);
    tcp_flow_pop(flow);
    consider_first(flow);
}

static void unlink_send(tcp_flow *flow, const tcp_request *send)
{
    if (flow->first == send) {
        replace_first(flow);
        return;
    }
    tcp_request *before = flow->first;
    while (before->next != send) before = before->next;
    before->next = send->next;
    if (flow->last == send) flow->last = before;
}

/* Where what the system has not yet of a message begins. */
static size_t first_unwritten(const tcp_request *send)
{
    const tcp_peer *peer = send->peer;
    size_t first = send->given;
    for (int s = 0; s < peer->streams; s++)
        for (int i = 0; i < peer->stream[s].out_count; i++) {
            const tcp_outgoing *frame = &peer->stream[s].out[(peer->stream[s].out_first + i) % TCP_BATCH];
            size_t done = frame->done > TCP_FRAME_BYTES ? frame->done - TCP_FRAME_BYTES : 0;
            if (frame->message == send && frame->offset + done < first) first = frame->offset + done;
        }
    return first;
}

void tcp_outbox_withdraw(tcp_request *send)
{
    if (!send->begun) {
        unlink_send(send->flow, send);
        free(send);
        return;
    }
    size_t first = first_unwritten(send), left = send->size - first;
    send->orphan = 1;
    send->rest_at = first;
    send->rest = malloc(left ? left : 1);
    if (send->rest)
        memcpy(send->rest, send->src + first, left);
    else
        tcp_peer_fail(send->peer, TW_ERROR_MEMORY, "no memory for what was left of a message to rank %d",
                      send->peer->rank);
}

/* --- what the peer says -------------------------------------------------------------------------------------- */

static int take_ready(tcp_peer *peer, tcp_flow *flow, const tcp_frame *frame)
{
    if (frame->seq < flow->sent_seq) return 1; /* it went on credit */
    if (frame->seq - flow->sent_seq >= TCP_MOST_AHEAD || peer->permits == TCP_MOST_FLOWS)
        return tcp_peer_violated(peer, "it is ready for messages far ahead");
    tcp_permit **link = &flow->permits;
    while (*link && (*link)->seq < frame->seq) link = &(*link)->next;
    if (!*link || (*link)->seq != frame->seq) {
        tcp_permit *permit = malloc(sizeof *permit);
        if (!permit) {
            tcp_peer_fail(peer, TW_ERROR_MEMORY, "no memory to note what rank %d is ready for", peer->rank);
            return 0;
        }
        permit->next = *link;
        *link = permit;
        peer->permits++;
    }
    (*link)->seq = frame->seq;
    (*link)->size = frame->size > SIZE_MAX ? SIZE_MAX : (size_t)frame->size;
    consider_first(flow);
    return 1;
}

int tcp_outbox_take(tcp_peer *peer, const tcp_frame *frame, tcp_flow *flow)
{
    if (frame->kind == TCP_READY) return take_ready(peer, flow, frame);
    if (frame->size > flow->owed) return tcp_peer_violated(peer, "credit for what it never got");
    flow->owed -= (size_t)frame->size;
    return 1;
}

/* --- the next frame ------------------------------------------------------------------------------------------ */

static int is_credit_due(const tcp_flow *flow)
{
    return flow->received >= TCP_WINDOW / 2;
}

static tcp_frame ready_frame(tcp_flow *flow)
{
    tcp_slot *slot = flow->front;
    while (!slot->ready_due) slot = slot->next;
    tcp_frame frame = {.kind = TCP_READY, .channel = flow->channel, .seq = slot->seq, .size = slot->granted};
    slot->ready_due = 0;
    flow->ready_due--;
    tcp_inbox_settle(flow);
    return frame;
}

static tcp_frame offer_frame(tcp_flow *flow)
{
    size_t size = waits_for_permit(flow) ? flow->first->size : 0;
    flow->offer_due = flow->corrects = 0;
    return (tcp_frame){.kind = TCP_OFFER, .channel = flow->channel, .seq = flow->sent_seq, .size = size};
}

static tcp_frame credit_frame(tcp_flow *flow)
{
    tcp_frame frame = {.kind = TCP_CREDIT, .channel = flow->channel, .size = flow->received};
    flow->unpaid -= flow->received;
    flow->received = 0;
    return frame;
}

static tcp_frame control_frame(tcp_peer *peer)
{
    peer->controls--;
    tcp_flow *flow = peer->flows;
    for (;; flow = flow->other) {
        if (flow->ready_due) return ready_frame(flow);
        if (flow->offer_due) return offer_frame(flow);
        if (is_credit_due(flow)) break;
    }
    return credit_frame(flow);
}

static void outbox_begin(tcp_flow *flow, tcp_request *send)
{
    send->begun = 1;
    send->seq = flow->sent_seq++;
    (void)permit_of(flow); /* a small message needed none, but one may have come for it */
    flow->offered = 0;
    if (is_small(send)) flow->owed += send->size + TCP_MESSAGE_COST;
}

/* For a receiver that did not know: instead of the message. */
static tcp_frame last_offer(tcp_flow *flow)
{
    tcp_frame frame = {.kind = TCP_OFFER, .channel = flow->channel, .seq = flow->sent_seq, .size = flow->first->size};
    skip_first(flow);
    consider_first(flow);
    return frame;
}

static tcp_frame next_piece(tcp_flow *flow, tcp_outgoing *out)
{
    tcp_request *send = flow->first;
    if (is_declined(flow)) return last_offer(flow);
    if (!send->begun) outbox_begin(flow, send);
    size_t left = send->size - send->given;
    out->message = send;
    out->offset = send->given;
    out->length = left < TCP_SEGMENT ? left : TCP_SEGMENT;
    send->given += out->length;
    send->frames++;
    if (send->given == send->size) {
        tcp_flow_pop(flow);
        consider_first(flow);
    }
    return (tcp_frame){.kind = is_small(send) ? TCP_DATA : TCP_GRANTED,
                       .channel = flow->channel,
                       .check = send->check,
                       .length = (uint32_t)out->length,
                       .seq = send->seq,
                       .size = send->size,
                       .offset = out->offset};
}

/* The first that may send, from the one whose turn it is on. */
static tcp_flow *next_flow(tcp_peer *peer)
{
    for (tcp_flow *flow = peer->turn; flow; flow = flow->other)
        if (may_send(flow)) return flow;
    for (tcp_flow *flow = peer->flows; flow && flow != peer->turn; flow = flow->other)
        if (may_send(flow)) return flow;
    return NULL;
}

/* A thread that has waited a moment ago has only looked up. */
static tcp_frame word_of(const tcp_peer *peer)
{
    const tcp_waits *own = peer->own;
    if (!peer->here_due) return (tcp_frame){.kind = TCP_ASK};
    const tcp_doing doing = !own                                                   ? TCP_UNTOLD
                            : own->count > 0 || tw_clock() - own->ended < LOOKS_UP ? TCP_WAITS
                                                                                   : TCP_IS_BUSY;
    return (tcp_frame){.kind = TCP_HERE, .size = doing};
}

/* Who goes asks no more, and answers no more. */
int tcp_outbox_next(tcp_peer *peer, int stream, tcp_outgoing *out)
{
    tcp_frame frame;
    tcp_flow *flow = NULL;
    *out = (tcp_outgoing){.message = NULL};
    if (stream == 0 && !peer->closing && (peer->here_due || peer->ask_due)) {
        frame = word_of(peer);
        *(peer->here_due ? &peer->here_due : &peer->ask_due) = 0;
    } else if (stream == 0 && peer->controls) {
        frame = control_frame(peer);
    } else if ((flow = next_flow(peer))) {
        peer->turn = flow->other;
        frame = next_piece(flow, out);
    } else if (stream == 0 && peer->bye_due) {
        frame = (tcp_frame){.kind = TCP_BYE};
        peer->bye_due = 0;
    } else {
        return 0;
    }
    tcp_frame_write(&frame, out->header);
    return 1;
}

const unsigned char *tcp_outbox_bytes(const tcp_request *send, size_t at)
{
    return send->orphan ? send->rest + (at - send->rest_at) : send->src + at;
}

void tcp_outbox_written(tcp_request *send)
{
    send->frames--;
    if (send->frames == 0 && send->given == send->size) tcp_send_end(send, TCP_DONE);
}

int tcp_outbox_is_empty(const tcp_peer *peer)
{
    if (peer->controls || peer->bye_due) return 0;
    for (const tcp_flow *flow = peer->flows; flow; flow = flow->other)
        if (flow->first) return 0;
    for (int s = 0; s < peer->streams; s++)
        if (peer->stream[s].out_count) return 0;
    return 1;
}
