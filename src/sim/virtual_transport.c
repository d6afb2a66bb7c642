/* virtual - the transport between the ranks of a world.
 *
 * A message is copied when it is started, so its sender is done as soon as the last bit has left its line, and it is
 * copied into the receiver's buffer when its receiver waits for it, not before: of the N x N packets of an all-gather,
 * only those of the ranks that are awake take memory. What one rank sends to many (the same address, while it is still
 * the transport's) is held once.
 *
 * A message is lost if its sender is gone before the last bit has left. */
#include "world.h"

#include "error.h"
#include "memory.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

struct tw_payload {
    tw_payload *older, *newer; /* in the world's list */
    tw_seat *sender;
    const void *src;
    size_t size, letters; /* that hold it */
    size_t pending;       /* of them, those whose send has not been waited for: until then nobody may write to src */
    unsigned char bytes[];
};

/* A send. Three may hold it: who started it, the network, who is to receive it. */
typedef struct letter {
    tw_entry entry;
    int holders;
    uint32_t check;
    tw_parcel parcel;
    tw_payload *payload; /* NULL for a message without bytes */
    tw_receipt *receipt; /* its partner */
} letter;

struct tw_receipt {
    tw_entry entry;
    tw_receipt *next; /* among the awaited ones */
    letter *letter;   /* its partner */
    void *dst;
    size_t capacity;
    int awaited;
};

static double now_of(const tw_world *world)
{
    return tw_virtual_now(world->clock);
}

/* What short messages, by far the most, are held in comes from a pool. */
enum { SHORT = 72 };

/* --- what is sent -------------------------------------------------------------------------------------------- */

static tw_status create_payload(tw_seat *sender, const void *src, size_t size, tw_payload **created)
{
    tw_payload *made, **newest = &sender->world->payloads;
    TW_TRY(size > SHORT ? tw_allocate_unset(sizeof *made + size, &made)
                        : tw_pool_take(&sender->world->short_payloads, &made));
    *made = (tw_payload){.sender = sender, .src = src, .size = size, .older = *newest};
    memcpy(made->bytes, src, size);
    if (*newest) (*newest)->newer = made;
    *created = sender->recent = *newest = made;
    return TW_OK;
}

static tw_status hold_payload(tw_seat *sender, letter *one, const void *src, size_t size)
{
    tw_payload *payload = sender->recent;
    if (!size) return TW_OK;
    if (!payload || !payload->pending || payload->src != src || payload->size != size)
        TW_TRY(create_payload(sender, src, size, &payload));
    payload->letters++;
    payload->pending++;
    one->payload = payload;
    return TW_OK;
}

static void release_payload(tw_payload *payload)
{
    if (!payload || --payload->letters) return;
    tw_seat *sender = payload->sender;
    if (sender->recent == payload) sender->recent = NULL;
    *(payload->newer ? &payload->newer->older : &sender->world->payloads) = payload->older;
    if (payload->older) payload->older->newer = payload->newer;
    if (payload->size > SHORT)
        tw_free(payload);
    else
        tw_pool_give(&sender->world->short_payloads, payload);
}

static void release_letter(tw_world *world, letter *one)
{
    if (--one->holders) return;
    release_payload(one->payload);
    tw_pool_give(&world->letters, one);
}

/* A send is its starter's no more. */
static void forget_send(tw_world *world, letter *one)
{
    if (one->payload) one->payload->pending--;
    release_letter(world, one);
}

static int is_lost(const tw_world *world, const letter *one)
{
    return one->parcel.departed > world->seats[one->entry.sender].gone_at;
}

/* --- who waits ----------------------------------------------------------------------------------------------- */

static void await_receipt(tw_seat *me, tw_receipt *one)
{
    one->awaited = 1;
    one->next = me->awaited;
    me->awaited = one;
}

static void await_no_more(tw_seat *me, tw_receipt *one)
{
    tw_receipt **link = &me->awaited;
    while (*link != one) link = &(*link)->next;
    *link = one->next;
    one->awaited = 0;
}

/* When the message of `one` is there is known by now: whoever waits for it need not wait longer. */
static void announce(tw_world *world, const letter *one)
{
    if (one->receipt && one->receipt->awaited)
        tw_virtual_hasten(&world->seats[one->entry.receiver].waiters, one->parcel.arrived);
}

static void arrive(tw_network *network, tw_parcel *parcel)
{
    tw_world *world = (tw_world *)(void *)((char *)network - offsetof(tw_world, network));
    letter *one = (letter *)(void *)((char *)parcel - offsetof(letter, parcel));
    announce(world, one);
    release_letter(world, one);
}

/* Wakes those of `other` that wait for a message `gone` has not begun to send. */
static void virtual_transport_tell(tw_seat *other, int gone)
{
    for (const tw_receipt *one = other->awaited; one; one = one->next)
        if (one->entry.sender == gone && !one->letter) {
            tw_virtual_wake_all(&other->waiters);
            return;
        }
}

static int is_gone(const tw_seat *seat)
{
    return seat->gone_at < (double)INFINITY;
}

void tw_seat_leave(tw_seat *me)
{
    tw_world *world = me->world;
    if (is_gone(me)) return;
    me->gone_at = now_of(world);
    tw_virtual_wake_all(&me->waiters);
    for (int r = 0; r < world->options.workers; r++) virtual_transport_tell(&world->seats[r], me->rank);
}

/* --- starting ------------------------------------------------------------------------------------------------ */

static tw_status check_inside(const tw_seat *me)
{
    if (tw_virtual_here() == me->world->clock) return TW_OK;
    return tw_fail(TW_ERROR_ORDER, "rank %d's comm may be used by threads of its world only", me->rank);
}

static tw_status fail_gone(const tw_seat *me, int peer)
{
    const tw_world *world = me->world;
    if (world->over)
        return tw_fail(TW_ERROR_PEER, "rank %d: the world ended at its time limit of %g seconds", me->rank,
                       world->options.time_limit);
    if (is_gone(me) && me->gave_up)
        return tw_fail(TW_ERROR_PEER, "this rank, %d, gave up on the group after a failure on another channel",
                       me->rank);
    if (is_gone(me)) return tw_fail(TW_ERROR_PEER, "rank %d itself was killed", me->rank);
    return tw_fail(TW_ERROR_PEER, "rank %d has left the group", peer);
}

static int host_of(const tw_world *world, int rank)
{
    return rank / world->options.workers_per_host;
}

/* Sends a letter that stands in the table, or has its partner. */
static void dispatch(tw_seat *me, letter *one, size_t size)
{
    tw_world *world = me->world;
    one->parcel.from = host_of(world, me->rank);
    one->parcel.to = host_of(world, one->entry.receiver);
    one->parcel.size = size;
    tw_network_send(&world->network, &one->parcel);
    if (one->parcel.from == one->parcel.to) {
        announce(world, one);
        return;
    }
    one->holders++;
    me->bytes += size;
}

static tw_status post_letter(tw_seat *me, letter *one, const void *src, size_t size)
{
    tw_entry *partner;
    TW_TRY(hold_payload(me, one, src, size));
    TW_TRY(tw_matching_pair(&me->world->unmatched, &one->entry, &partner));
    one->receipt = (tw_receipt *)(void *)partner;
    if (partner) one->receipt->letter = one;
    dispatch(me, one, size);
    return TW_OK;
}

static tw_status virtual_transport_start_send(void *self, int peer, unsigned channel, const void *src, size_t size,
                                              uint32_t check, void **handle)
{
    tw_seat *me = self;
    letter *one;
    TW_TRY(check_inside(me));
    if (is_gone(me) || is_gone(&me->world->seats[peer])) return fail_gone(me, peer);
    TW_TRY(tw_pool_take(&me->world->letters, &one));
    one->entry = (tw_entry){.sender = me->rank, .receiver = peer, .channel = channel, .is_send = 1};
    one->holders = 2;
    one->check = check;
    tw_status status = post_letter(me, one, src, size);
    if (status != TW_OK) {
        one->holders = 1;
        forget_send(me->world, one);
        return status;
    }
    *handle = one;
    return TW_OK;
}

static tw_status virtual_transport_start_recv(void *self, int peer, unsigned channel, void *dst, size_t capacity,
                                              void **handle)
{
    tw_seat *me = self;
    tw_world *world = me->world;
    tw_receipt *one;
    tw_entry *partner;
    TW_TRY(check_inside(me));
    if (is_gone(me)) return fail_gone(me, peer);
    TW_TRY(tw_pool_take(&world->receipts, &one));
    *one = (tw_receipt){.entry = {.sender = peer, .receiver = me->rank, .channel = channel}, .dst = dst};
    one->capacity = capacity;
    tw_status status = tw_matching_pair(&world->unmatched, &one->entry, &partner);
    if (status != TW_OK) {
        tw_pool_give(&world->receipts, one);
        return status;
    }
    one->letter = (letter *)(void *)partner;
    if (partner) one->letter->receipt = one;
    *handle = one;
    return TW_OK;
}

/* --- waiting ------------------------------------------------------------------------------------------------- */

static tw_status fail_late(const tw_seat *me, int peer, double timeout)
{
    return tw_fail(TW_ERROR_PEER, "rank %d did not answer rank %d within %g seconds", peer, me->rank, timeout);
}

static void sleep_until_departed(tw_seat *me, const letter *one, double deadline)
{
    double now, departs = one->parcel.departed;
    while ((now = now_of(me->world)) < departs && now < deadline && !is_gone(me))
        tw_virtual_wait(&me->waiters, departs < deadline ? departs : deadline, "a message to leave");
}

static tw_status wait_send(tw_seat *me, letter *one, double timeout)
{
    int peer = one->entry.receiver;
    sleep_until_departed(me, one, now_of(me->world) + timeout);
    int has_departed = one->parcel.departed <= now_of(me->world);
    forget_send(me->world, one);
    if (has_departed) return TW_OK;
    return is_gone(me) ? fail_gone(me, peer) : fail_late(me, peer, timeout);
}

/* When there will be nothing left to wait for, as far as is known now. */
static double receipt_due(const tw_seat *me, const tw_receipt *one)
{
    const tw_world *world = me->world;
    int lost = one->letter ? is_lost(world, one->letter) : is_gone(&world->seats[one->entry.sender]);
    if (lost || is_gone(me)) return 0;
    return one->letter ? one->letter->parcel.arrived : (double)INFINITY;
}

static void sleep_until_due(tw_seat *me, tw_receipt *one, double deadline)
{
    double due;
    await_receipt(me, one);
    while ((due = receipt_due(me, one)) > now_of(me->world) && deadline > now_of(me->world))
        tw_virtual_wait(&me->waiters, due < deadline ? due : deadline, "a message");
    await_no_more(me, one);
}

static tw_status virtual_transport_take_message(const tw_seat *me, const tw_receipt *one, double timeout, size_t *size,
                                                uint32_t *check)
{
    const letter *message = one->letter;
    int peer = one->entry.sender;
    if (receipt_due(me, one) > now_of(me->world)) return fail_late(me, peer, timeout);
    if (is_gone(me) || !message || is_lost(me->world, message)) return fail_gone(me, peer);
    if (message->parcel.size > one->capacity)
        return tw_fail(TW_ERROR_PACKET,
                       "rank %d sent rank %d a message larger than was agreed: every rank must pass the same count",
                       peer, me->rank);
    *size = message->parcel.size;
    *check = message->check;
    if (*size) memcpy(one->dst, message->payload->bytes, *size);
    return TW_OK;
}

static void release_receipt(tw_world *world, tw_receipt *one)
{
    if (one->letter) {
        one->letter->receipt = NULL;
        release_letter(world, one->letter);
    } else {
        tw_matching_remove(&world->unmatched, &one->entry);
    }
    tw_pool_give(&world->receipts, one);
}

static tw_status wait_receipt(tw_seat *me, tw_receipt *one, double timeout, size_t *size, uint32_t *check)
{
    sleep_until_due(me, one, now_of(me->world) + timeout);
    tw_status status = virtual_transport_take_message(me, one, timeout, size, check);
    release_receipt(me->world, one);
    return status;
}

static tw_status virtual_transport_wait_request(void *self, void *request, double timeout, size_t *size,
                                                uint32_t *check)
{
    tw_entry *entry = request;
    if (entry->is_send) return wait_send(self, request, timeout);
    return wait_receipt(self, request, timeout, size, check);
}

static int virtual_transport_poll_request(void *self, void *request, double timeout)
{
    tw_seat *me = self;
    tw_entry *entry = request;
    double deadline = now_of(me->world) + timeout;
    if (entry->is_send)
        sleep_until_departed(me, request, deadline);
    else
        sleep_until_due(me, request, deadline);
    double due = entry->is_send ? ((letter *)request)->parcel.departed : receipt_due(me, request);
    return due <= now_of(me->world) || is_gone(me);
}

static void virtual_transport_leave(void *self)
{
    tw_seat *me = self;
    if (!is_gone(me)) me->gave_up = 1;
    tw_seat_leave(me);
}

static void virtual_transport_destroy(void *self)
{
    tw_seat_leave(self);
}

static const tw_transport_ops virtual_ops = {.struct_size = sizeof(tw_transport_ops),
                                             .version = TW_TRANSPORT_VERSION,
                                             .name = "virtual",
                                             .start_send = virtual_transport_start_send,
                                             .start_recv = virtual_transport_start_recv,
                                             .wait = virtual_transport_wait_request,
                                             .poll = virtual_transport_poll_request,
                                             .leave = virtual_transport_leave,
                                             .destroy = virtual_transport_destroy};

tw_status tw_seat_join(tw_seat *me)
{
    return tw_comm_create_custom(&virtual_ops, me, me->rank, me->world->options.workers, &me->comm);
}

tw_status tw_messages_create(tw_world *world)
{
    world->letters.size = sizeof(letter);
    world->receipts.size = sizeof(tw_receipt);
    world->short_payloads.size = sizeof(tw_payload) + SHORT;
    world->network.arrive = arrive;
    return tw_network_create_lines(&world->network);
}

void tw_messages_free(tw_world *world)
{
    while (world->payloads) {
        tw_payload *payload = world->payloads;
        world->payloads = payload->older;
        if (payload->size > SHORT) tw_free(payload);
    }
    tw_pool_free(&world->short_payloads);
    tw_network_free_lines(&world->network);
    tw_matching_free(&world->unmatched);
    tw_pool_free(&world->letters);
    tw_pool_free(&world->receipts);
}
