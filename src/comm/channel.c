/* Channels, and the one place where messages are started, waited for and counted. */
#include "channel.h"

#include "error.h"
#include "held.h"
#include "memory.h"
#include "patience.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MORE_TRANSFERS = 48, /* more than collectives.c has under way in a large all-reduce */
    SEGMENT = 128 * 1024 /* several of them, which take turns on a line, stay in the cache */
};

static tw_status channel_create(tw_comm *comm, tw_channel **channel)
{
    tw_channel *made;
    size_t peers = comm->size < TW_WINDOW ? (size_t)comm->size : TW_WINDOW;
    TW_TRY(tw_allocate(1, sizeof *made, &made));
    made->comm = comm;
    tw_comm_hold(comm);
    made->segment = SEGMENT;
    tw_status status = tw_allocate(2 * peers + MORE_TRANSFERS, sizeof *made->transfers, &made->transfers);
    if (status == TW_OK)
        *channel = made;
    else
        tw_channel_destroy(made);
    return status;
}

tw_status tw_channel_create(tw_comm *comm, tw_channel **channel)
{
    return tw_channel_create_wide(comm, 0, channel);
}

void tw_channel_give(tw_channel *channel, tw_numbers *numbers)
{
    channel->has_taken = 1;
    channel->numbers = numbers;
    channel->number = numbers->first;
}

tw_status tw_channel_create_wide(tw_comm *comm, unsigned more, tw_channel **channel)
{
    tw_channel *made;
    tw_numbers *numbers;
    TW_TRY(channel_create(comm, &made));
    tw_status status = tw_numbers_take(comm, 1 + more, &numbers);
    if (status != TW_OK) {
        tw_channel_destroy(made);
        return status;
    }
    tw_channel_give(made, numbers);
    *channel = made;
    return TW_OK;
}

tw_status tw_channel_create_behind(const tw_channel *first, unsigned behind, tw_channel **channel)
{
    TW_TRY(channel_create(first->comm, channel));
    (*channel)->number = first->number + behind;
    (*channel)->numbers = first->numbers;
    return TW_OK;
}

void tw_channel_destroy(tw_channel *channel)
{
    if (!channel) return;
    if (channel->has_taken) tw_numbers_give(channel->comm, channel->numbers);
    tw_free(channel->scratch);
    tw_free(channel->sizes);
    tw_free((void *)channel->packets);
    tw_free(channel->transfers);
    tw_comm_release(channel->comm);
    tw_free(channel);
}

tw_status tw_channel_list(tw_channel *channel)
{
    size_t ranks = (size_t)channel->comm->size;
    tw_status status = TW_OK;
    if (!channel->packets) status = tw_allocate(ranks, sizeof *channel->packets, &channel->packets);
    if (status == TW_OK && !channel->sizes) status = tw_allocate(ranks, sizeof *channel->sizes, &channel->sizes);
    return status == TW_OK ? TW_OK : tw_channel_give_up(channel, status);
}

tw_status tw_channel_reserve(tw_channel *channel, size_t bytes)
{
    if (bytes == 0) bytes = 1; /* collectives of nothing add 0 to scratch, so it has to be an address */
    if (bytes <= channel->scratch_bytes) return TW_OK;
    tw_free(channel->scratch);
    channel->scratch = NULL;
    channel->scratch_bytes = 0;
    tw_status status =
        tw_virtual_self ? tw_allocate_sparse(bytes, &channel->scratch) : tw_allocate_unset(bytes, &channel->scratch);
    if (status != TW_OK) return tw_channel_give_up(channel, status); /* the others take part */
    channel->scratch_bytes = bytes;
    return TW_OK;
}

void tw_channel_release(tw_channel *channel)
{
    if (tw_virtual_self) tw_discard(channel->scratch, channel->scratch_bytes);
}

tw_traffic tw_counters_read(const tw_counters *counters)
{
    return (tw_traffic){sizeof(tw_traffic), counters->bytes_sent, counters->bytes_received, counters->messages_sent,
                        counters->messages_received};
}

tw_traffic tw_channel_traffic(const tw_channel *channel)
{
    return tw_counters_read(&channel->counters);
}

void tw_counters_add(tw_counters *counters, int outgoing, size_t size)
{
    if (outgoing) {
        counters->bytes_sent += size;
        counters->messages_sent++;
    } else {
        counters->bytes_received += size;
        counters->messages_received++;
    }
}

/* Keeps the first failure of the phase with its text: later calls on the transport may write over it. */
static void fail_phase(tw_channel *channel, tw_status status)
{
    if (channel->status != TW_OK) return;
    channel->status = status;
    snprintf(channel->reason, sizeof channel->reason, "%s", tw_last_error());
}

static const char own_will[] = "this rank has left it";

/* The comm is of no more use: the others are told, if they can be, and because of which peer; -1: of none. */
static void break_comm(tw_channel *channel, const char *reason, int because_of)
{
    tw_comm *comm = tw_comm_whole(channel->comm);
    tw_mutex_lock(&comm->mutex);
    int first = !comm->broken;
    if (first) {
        snprintf(comm->reason, sizeof comm->reason, "%s", reason);
        comm->broken = 1;
        channel->broke = 1;
    }
    tw_mutex_unlock(&comm->mutex);
    if (!first) return;
    if (reason != own_will && !comm->ops.is_told_of)
        tw_log(TW_LOG_WARNING, "rank %d: the group of %d ranks broke: %s", comm->rank, comm->size, reason);
    tw_comm_withdraw(channel->comm, because_of);
}

/* After any failure in the transport the ranks no longer agree on where they are. */
static void fail_transfer(tw_channel *channel, const tw_transfer *transfer, tw_status status)
{
    fail_phase(channel, status);
    break_comm(channel, channel->reason, status == TW_ERROR_PEER ? transfer->peer : -1);
}

tw_status tw_channel_give_up(tw_channel *channel, tw_status status)
{
    char reason[TW_REASON_BYTES];
    snprintf(reason, sizeof reason, "%s", tw_last_error());
    if (tw_comm_whole(channel->comm)->size > 1) break_comm(channel, reason, -1); /* one alone keeps nobody waiting */
    return tw_fail(status, "%s", reason);
}

void tw_channel_share_line(tw_channel *channel, void (*leave)(void *context), void *context)
{
    channel->leave_line = leave;
    channel->leave_context = context;
}

void tw_channel_leave(tw_channel *channel)
{
    break_comm(channel, own_will, -1);
}

tw_status tw_channel_check(const tw_channel *channel)
{
    const tw_comm *comm = tw_comm_whole(channel->comm);
    return comm->broken ? tw_fail(TW_ERROR_PEER, "the group broke earlier: %s", comm->reason) : TW_OK;
}

tw_status tw_channel_check_left(const tw_channel *channel)
{
    const tw_comm *comm = tw_comm_whole(channel->comm);
    return comm->broken && strcmp(comm->reason, own_will) == 0 ? tw_channel_check(channel) : TW_OK;
}

double tw_channel_patience(const tw_channel *channel)
{
    tw_wait wait;
    tw_wait_begin(tw_comm_whole(channel->comm), &wait);
    return wait.patience;
}

void tw_channel_keep_quiet(const tw_channel *channel, int more)
{
    tw_comm_whole(channel->comm)->quiet += more;
}

int tw_channel_broke(const tw_channel *channel)
{
    tw_mutex *mutex = &tw_comm_whole(channel->comm)->mutex;
    tw_mutex_lock(mutex);
    int broke = channel->broke;
    tw_mutex_unlock(mutex);
    return broke;
}

/* 1 while this phase and the comm are whole. */
static int is_whole(tw_channel *channel)
{
    if (channel->status == TW_OK && tw_channel_check(channel) != TW_OK) fail_phase(channel, TW_ERROR_PEER);
    return channel->status == TW_OK;
}

static void note_start(tw_channel *channel, const tw_transfer *transfer, tw_status status)
{
    if (status != TW_OK) {
        fail_transfer(channel, transfer, status);
        return;
    }
    channel->transfers[channel->transfer_count++] = *transfer;
    tw_numbers_started(channel->numbers, transfer->outgoing);
}

void tw_channel_start_receive(tw_channel *channel, int peer, void *dst, size_t capacity, size_t *received)
{
    tw_comm *comm = channel->comm;
    if (!is_whole(channel)) return;
    tw_transfer transfer = {.peer = peer, .dst = dst, .size = capacity, .received = received};
    tw_status status = comm->ops.start_recv(comm->self, peer, channel->number, dst, capacity, &transfer.request);
    note_start(channel, &transfer, status);
}

/* What is under way is not written to, so of the same bytes it is the same. */
static uint32_t check_of(tw_channel *channel, const void *src, size_t size)
{
    tw_checked *sent = &channel->sent;
    if (sent->src != src || sent->size != size) *sent = (tw_checked){src, size, tw_crc32c(0, src, size)};
    return sent->check;
}

void tw_channel_start_send_noted(tw_channel *channel, int peer, const void *src, size_t size, uint32_t word)
{
    tw_comm *comm = channel->comm;
    if (!is_whole(channel)) return;
    tw_transfer transfer = {.peer = peer, .outgoing = 1, .size = size};
    tw_status status = comm->ops.start_send(comm->self, peer, channel->number, src, size, word, &transfer.request);
    note_start(channel, &transfer, status);
}

void tw_channel_start_send(tw_channel *channel, int peer, const void *src, size_t size)
{
    if (is_whole(channel)) tw_channel_start_send_noted(channel, peer, src, size, check_of(channel, src, size));
}

static tw_status check_size(const tw_channel *channel, const tw_transfer *transfer, size_t size)
{
    int peer = tw_comm_name(channel->comm, transfer->peer);
    if (size > transfer->size)
        return tw_fail(
            TW_ERROR_PACKET,
            "rank %d sent %zu bytes, more than the %zu that were agreed: every rank must pass the same count", peer,
            size, transfer->size);
    if (!transfer->received && size != transfer->size)
        return tw_fail(TW_ERROR_PACKET, "rank %d sent %zu bytes instead of %zu: every rank must pass the same count",
                       peer, size, transfer->size);
    return TW_OK;
}

static tw_status check_bytes(const tw_channel *channel, const tw_transfer *transfer, size_t size, uint32_t check)
{
    uint32_t found = tw_crc32c(0, transfer->dst, size);
    if (found == check) return TW_OK;
    return tw_fail(TW_ERROR_PACKET,
                   "the message from rank %d on channel %u is damaged: its %zu bytes have the checksum %08x, not %08x",
                   tw_comm_name(channel->comm, transfer->peer), channel->number, size, found, check);
}

/* Waits until the request is over, or the wait is. A nap counts as what was asked for: when it took longer, then this
 * process was stopped or its machine asleep, which says nothing of the peer. */
static int wait_awake(tw_comm *comm, const tw_transfer *transfer, tw_wait *wait)
{
    int over = 0;
    while (!over && !tw_wait_is_over(wait)) {
        double began = tw_clock(), nap = tw_wait_nap(comm, wait);
        over = comm->ops.poll(comm->self, transfer->request, nap);
        tw_wait_spend(wait, over ? fmin(tw_clock() - began, nap) : nap);
        if (!over) tw_wait_look(comm, transfer->peer, wait);
        if (!over) tw_wait_tell(comm, wait);
    }
    return over;
}

/* Without a wait the request is taken back, done or not. A transport that is never impatient has its own way to wait
 * (subset.c). */
static tw_status wait_until_over(tw_comm *comm, const tw_transfer *transfer, tw_wait *wait, size_t *size,
                                 uint32_t *check)
{
    if (wait && isinf(comm->timeout)) return comm->ops.wait(comm->self, transfer->request, comm->timeout, size, check);
    if (wait) tw_wait_turn(comm, wait);
    int over = !wait || wait_awake(comm, transfer, wait);
    tw_status status = comm->ops.wait(comm->self, transfer->request, 0, size, check);
    return over || status != TW_ERROR_PEER ? status : tw_wait_fail(comm, transfer->peer, wait);
}

static tw_status wait_for(tw_channel *channel, const tw_transfer *transfer, tw_wait *wait)
{
    tw_comm *comm = channel->comm;
    size_t size = 0;
    uint32_t check = 0;
    tw_status status = wait_until_over(comm, transfer, wait, &size, &check);
    tw_numbers_ended(channel->numbers, transfer->outgoing, status);
    TW_TRY(status);
    if (transfer->outgoing) size = transfer->size;
    TW_TRY(check_size(channel, transfer, size));
    if (!transfer->outgoing) TW_TRY(check_bytes(channel, transfer, size, check));
    tw_counters_add(&channel->counters, transfer->outgoing, size);
    tw_counters_add(&comm->counters, transfer->outgoing, size);
    if (transfer->received) *transfer->received = size;
    return TW_OK;
}

tw_status tw_channel_finish_to(tw_channel *channel, size_t most)
{
    tw_wait wait;
    size_t done = 0, over = channel->transfer_count > most ? channel->transfer_count - most : 0;
    tw_wait_begin(channel->comm, &wait);
    while (done < over && is_whole(channel)) {
        const tw_transfer *transfer = &channel->transfers[done++];
        tw_status status = wait_for(channel, transfer, &wait);
        if (status != TW_OK) fail_transfer(channel, transfer, status);
    }
    if (is_whole(channel)) tw_wait_end(channel->comm, &wait);
    channel->transfer_count -= done;
    memmove(channel->transfers, channel->transfers + done, channel->transfer_count * sizeof *channel->transfers);
    return is_whole(channel) ? TW_OK : tw_channel_finish(channel);
}

tw_status tw_channel_finish(tw_channel *channel)
{
    tw_wait wait;
    tw_wait_begin(channel->comm, &wait);
    is_whole(channel); /* a phase without messages fails on a broken comm, too */
    /* The last first: when it is done, so are the others as a rule, and one wait does for all of them. */
    for (size_t i = channel->transfer_count; i-- > 0;) {
        /* Once something is wrong, the rest is only taken back. */
        const tw_transfer *transfer = &channel->transfers[i];
        tw_status status = wait_for(channel, transfer, is_whole(channel) ? &wait : NULL);
        if (status != TW_OK) fail_transfer(channel, transfer, status);
    }
    tw_status status = channel->status;
    if (status == TW_OK) tw_wait_end(channel->comm, &wait);
    channel->transfer_count = 0;
    channel->sent = (tw_checked){0};
    channel->status = TW_OK;
    return status == TW_OK ? TW_OK : tw_fail(status, "%s", channel->reason);
}
