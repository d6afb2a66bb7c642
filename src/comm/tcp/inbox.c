/* Messages that come. A slot is where a message and the receive that was posted for it meet, whichever is first. */
#include "peer.h"

#include <stdlib.h>
#include <string.h>

static int out_of_memory(tcp_peer *peer, size_t bytes)
{
    tcp_peer_fail(peer, TW_ERROR_MEMORY, "no memory to keep %zu bytes from rank %d", bytes, peer->rank);
    return 0;
}

/* --- slots --------------------------------------------------------------------------------------------------- */

static tcp_slot *add_slot(tcp_peer *peer, tcp_flow *flow)
{
    tcp_slot *slot = malloc(sizeof *slot);
    if (!slot) return NULL;
    *slot = (tcp_slot){.seq = flow->back ? flow->back->seq + 1 : flow->base};
    if (flow->back)
        flow->back->next = slot;
    else
        flow->front = slot;
    flow->back = slot;
    peer->slots++;
    return slot;
}

/* The slot with a number from base on; those before it are made, too. NULL: no memory, or too many. */
static tcp_slot *slot_at(tcp_peer *peer, tcp_flow *flow, uint64_t seq)
{
    while (!flow->back || flow->back->seq < seq)
        if (peer->slots >= TCP_MOST_SLOTS || !add_slot(peer, flow)) return NULL;
    tcp_slot *slot = flow->back->seq == seq ? flow->back : flow->front;
    while (slot && slot->seq != seq) slot = slot->next;
    return slot;
}

static void pop_slot(tcp_peer *peer, tcp_flow *flow)
{
    tcp_slot *slot = flow->front;
    flow->front = slot->next;
    if (!flow->front) flow->back = NULL;
    flow->base = slot->seq + 1;
    free(slot);
    peer->slots--;
}

void tcp_inbox_settle(tcp_flow *flow)
{
    while (flow->front && flow->front->over && !flow->front->ready_due) pop_slot(flow->peer, flow);
}

static void say_ready(tcp_peer *peer, tcp_flow *flow, tcp_slot *slot, size_t size)
{
    slot->granted = size > slot->granted ? size : slot->granted;
    if (slot->ready_due) return;
    slot->ready_due = 1;
    flow->ready_due++;
    peer->controls++;
}

/* --- the end of a message ------------------------------------------------------------------------------------ */

static void give_credit(tcp_peer *peer, tcp_flow *flow, const tcp_slot *slot)
{
    int was_due = flow->received >= TCP_WINDOW / 2;
    if (!slot->small) return;
    flow->received += slot->size + TCP_MESSAGE_COST;
    if (!was_due && flow->received >= TCP_WINDOW / 2) peer->controls++;
}

static void forget_kept(tcp_peer *peer, tcp_slot *slot)
{
    if (!slot->kept) return;
    free(slot->kept);
    slot->kept = NULL;
    peer->kept -= slot->size;
}

/* Its receive learns that it does not fit, now; its bytes are let by. */
static void inbox_drop(tcp_peer *peer, tcp_slot *slot)
{
    tcp_receive_end(slot, TCP_TOO_LONG);
    slot->dropped = 1;
    forget_kept(peer, slot);
}

/* When a message is there, and the receive it is for, they are over. */
static void inbox_meet(tcp_peer *peer, tcp_flow *flow, tcp_slot *slot)
{
    if (!slot->begun || slot->arrived < slot->size || !(slot->receive || slot->dropped)) return;
    if (slot->receive) {
        if (slot->kept) memcpy(slot->receive->dst, slot->kept, slot->size);
        forget_kept(peer, slot);
        tcp_receive_end(slot, TCP_DONE);
    }
    give_credit(peer, flow, slot);
    slot->over = 1;
}

/* --- receives ------------------------------------------------------------------------------------------------ */

/* What waits is longer than there is room: it need not come, and both sides learn it. */
static void decline(tcp_peer *peer, tcp_flow *flow, tcp_slot *slot)
{
    size_t room = slot->receive->size;
    slot->size = slot->offered;
    slot->granted = 0;
    say_ready(peer, flow, slot, room);
    tcp_receive_end(slot, TCP_TOO_LONG);
    slot->over = 1;
}

static void attach(tcp_peer *peer, tcp_flow *flow, tcp_slot *slot, tcp_request *receive)
{
    slot->receive = receive;
    if (slot->begun) {
        if (slot->size > receive->size) inbox_drop(peer, slot);
        inbox_meet(peer, flow, slot);
    } else if (slot->offered > receive->size) {
        decline(peer, flow, slot);
    } else if (receive->size > TCP_EAGER) {
        say_ready(peer, flow, slot, receive->size);
    }
}

/* The first that none is posted for; NULL: all that there are have one. */
static tcp_slot *vacant_slot(const tcp_flow *flow)
{
    tcp_slot *slot = flow->front;
    while (slot && (slot->receive || slot->over || slot->dropped)) slot = slot->next;
    return slot;
}

static int has_come(const tcp_slot *slot)
{
    return slot && slot->begun && slot->arrived == slot->size;
}

tw_status tcp_inbox_post(tcp_flow *flow, tcp_request *receive)
{
    tcp_peer *peer = receive->peer;
    tcp_slot *slot = vacant_slot(flow);
    if (peer->gone && !has_come(slot)) return tw_fail(peer->why, "%s", peer->text);
    if (!slot) slot = add_slot(peer, flow);
    if (!slot) return tw_fail(TW_ERROR_MEMORY, "no memory for a receive from rank %d", peer->rank);
    receive->flow = flow;
    attach(peer, flow, slot, receive);
    tcp_inbox_settle(flow);
    return TW_OK;
}

/* What has come of a message so far moves out of its receiver's memory. */
static int keep(tcp_peer *peer, tcp_slot *slot, const unsigned char *come)
{
    if (slot->size == 0) return 1;
    if (slot->size > TCP_MOST_KEPT - peer->kept) return out_of_memory(peer, slot->size);
    slot->kept = malloc(slot->size);
    if (!slot->kept) return out_of_memory(peer, slot->size);
    if (come) memcpy(slot->kept, come, slot->size);
    peer->kept += slot->size;
    return 1;
}

static tcp_request *detach(tcp_peer *peer, tcp_slot *slot)
{
    tcp_request *receive = slot->receive;
    if (slot->begun && !slot->kept && !keep(peer, slot, receive->dst)) return NULL; /* all have failed */
    slot->receive = NULL;
    return receive;
}

static void fail_all(tcp_request *list)
{
    for (tcp_request *next; list; list = next) {
        next = list->next;
        tcp_request_end(list, TCP_FAILED);
    }
}

/* Those posted after it move up by one. */
void tcp_inbox_withdraw(tcp_request *receive)
{
    tcp_peer *peer = receive->peer;
    tcp_flow *flow = receive->flow;
    tcp_request *later = NULL, **end = &later;
    tcp_slot *slot = flow->front;
    while (slot->receive != receive) slot = slot->next;
    for (; slot; slot = slot->next) {
        if (!slot->receive) continue;
        tcp_request *one = detach(peer, slot);
        if (!one) return fail_all(later);
        if (one == receive) continue;
        *end = one;
        one->next = NULL;
        end = &one->next;
    }
    while (later) {
        tcp_request *one = later;
        later = one->next;
        (void)tcp_inbox_post(flow, one); /* there is a slot */
    }
}

/* --- what comes ---------------------------------------------------------------------------------------------- */

static int inbox_begin(tcp_peer *peer, tcp_flow *flow, tcp_slot *slot, const tcp_frame *frame)
{
    slot->begun = 1;
    slot->size = (size_t)frame->size;
    slot->check = frame->check;
    slot->small = frame->kind == TCP_DATA;
    if (slot->small) {
        size_t cost = slot->size + TCP_MESSAGE_COST;
        if (slot->size > TCP_FAR_EAGER || cost > TCP_FAR_WINDOW - flow->unpaid)
            return tcp_peer_violated(peer, "a message for which there is no credit");
        flow->unpaid += cost;
    } else if (slot->size > slot->granted) {
        return tcp_peer_violated(peer, "a large message that nobody is ready for");
    }
    if (!slot->receive) return keep(peer, slot, NULL);
    if (slot->size > slot->receive->size) inbox_drop(peer, slot);
    return 1;
}

static int take_data(tcp_peer *peer, tcp_flow *flow, tcp_slot *slot, const tcp_frame *frame)
{
    int is_first = !slot->begun;
    if (is_first && !inbox_begin(peer, flow, slot, frame)) return 0;
    if (slot->size != frame->size || slot->check != frame->check || slot->small != (frame->kind == TCP_DATA))
        return tcp_peer_violated(peer, "pieces that do not fit together");
    if ((!is_first && slot->size == 0) || frame->length > slot->size - slot->claimed)
        return tcp_peer_violated(peer, "more pieces than a message has");
    slot->claimed += frame->length;
    if (slot->size == 0) {
        inbox_meet(peer, flow, slot);
        tcp_inbox_settle(flow);
    }
    return 1;
}

static int take_offer(tcp_peer *peer, tcp_flow *flow, tcp_slot *slot, const tcp_frame *frame)
{
    if (slot->begun) return tcp_peer_violated(peer, "an offer of a message that has begun");
    slot->offered = frame->size > SIZE_MAX ? SIZE_MAX : (size_t)frame->size;
    if (slot->receive && slot->offered > slot->receive->size) decline(peer, flow, slot);
    return 1;
}

/* An offer goes by the first connection, and its message may overtake it by another: then the offer says nothing new.
 */
static int is_overtaken(const tcp_peer *peer, const tcp_flow *flow, const tcp_frame *frame)
{
    if (frame->kind != TCP_OFFER || peer->streams == 1) return 0;
    if (frame->seq < flow->base) return 1;
    const tcp_slot *slot = flow->front;
    while (slot && slot->seq != frame->seq) slot = slot->next;
    return slot && (slot->begun || slot->over);
}

int tcp_inbox_take(tcp_peer *peer, const tcp_frame *frame, tcp_flow *flow, tcp_slot **found)
{
    *found = NULL;
    if (is_overtaken(peer, flow, frame)) return 1;
    if (frame->seq < flow->base || frame->seq - flow->base >= TCP_MOST_AHEAD)
        return tcp_peer_violated(peer, "a message out of turn");
    tcp_slot *slot = slot_at(peer, flow, frame->seq);
    if (!slot && peer->slots >= TCP_MOST_SLOTS) return tcp_peer_violated(peer, "more messages than may be under way");
    if (!slot) return out_of_memory(peer, sizeof *slot);
    if (slot->over) return tcp_peer_violated(peer, "a message that was there already");
    if (frame->kind == TCP_OFFER) return take_offer(peer, flow, slot, frame);
    int has_bytes = frame->length > 0;
    if (!take_data(peer, flow, slot, frame)) return 0;
    if (has_bytes) *found = slot;
    return 1;
}

unsigned char *tcp_inbox_target(const tcp_slot *slot, size_t at)
{
    if (slot->dropped) return NULL;
    return (slot->kept ? slot->kept : slot->receive->dst) + at;
}

void tcp_inbox_arrived(tcp_flow *flow, tcp_slot *slot, size_t bytes)
{
    slot->arrived += bytes;
    if (slot->arrived < slot->size) return;
    inbox_meet(flow->peer, flow, slot);
    tcp_inbox_settle(flow);
}
