#include "members.h"

#include "error.h"
#include "memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Parts of the deadline: how often a rank that waits says that it is there, the longest it waits without listening. */
#define BEAT 0.25
#define LONGEST_PAUSE 0.125
#define FIRST_PAUSE 1e-3 /* seconds */
/* Who waits listens more often: what is beyond this was a standstill of its own, and no silence of others. */
#define LONGEST_GAP 0.25

/* A message: what its sender knows, and behind it the bits of those that are lost. No holes. */
typedef struct news {
    char magic[4];
    uint32_t crc; /* CRC-32C of all that follows */
    uint32_t version;
    uint32_t sender;
    uint64_t round;
    uint64_t committed;
} news;

enum { NEWS = 32, CHECKED = 8, VERSION = 1 };
#define LAST_ROUND ((uint64_t)1 << 62) /* nobody lives to see it, and what comes after it can still be counted */
_Static_assert(sizeof(news) == NEWS, "the message has no holes");

static const char magic[4] = {'T', 'W', 'M', 'B'};

static size_t mask_bytes(const tw_members *members)
{
    return ((size_t)members->size + 7) / 8;
}

static size_t message_bytes(const tw_members *members)
{
    return NEWS + mask_bytes(members);
}

static const tw_comm *comm_of(const tw_members *members)
{
    return members->channel->comm;
}

tw_status tw_members_create(tw_channel *channel, tw_members *members)
{
    const tw_comm *comm = channel->comm;
    *members = (tw_members){.channel = channel,
                            .rank = comm->rank,
                            .size = comm->size,
                            .deadline = comm->timeout,
                            .news = 1,
                            .tended = tw_clock()};
    return tw_allocate(mask_bytes(members), 1, &members->dead);
}

/* --- messages under way ------------------------------------------------------------------------------------------ */

static tw_status open_peers(tw_members *members)
{
    if (members->peers) return TW_OK;
    size_t count = (size_t)members->size, bytes = message_bytes(members);
    tw_peer *peers;
    unsigned char *boxes;
    TW_TRY(tw_allocate(count, sizeof *peers + 2 * bytes, &peers));
    boxes = (unsigned char *)(peers + count);
    for (size_t i = 0; i < count; i++) {
        peers[i].inbox = boxes + 2 * i * bytes;
        peers[i].outbox = peers[i].inbox + bytes;
    }
    members->peers = peers;
    for (int rank = 0; rank < members->size; rank++) tw_members_await(members, rank);
    return TW_OK;
}

static void members_take_back(const tw_members *members, void **request, int outgoing)
{
    const tw_comm *comm = comm_of(members);
    size_t ignored;
    uint32_t check;
    if (*request)
        tw_numbers_ended(members->channel->numbers, outgoing,
                         comm->ops.wait(comm->self, *request, 0, &ignored, &check));
    *request = NULL;
}

static void end_talk(tw_members *members, tw_peer *peer)
{
    members_take_back(members, &peer->receive, 0);
    members_take_back(members, &peer->send, 1);
}

void tw_members_release(tw_members *members)
{
    for (int rank = 0; members->peers && rank < members->size; rank++) end_talk(members, &members->peers[rank]);
    tw_free(members->peers);
    tw_free(members->dead);
    *members = (tw_members){0};
}

/* 1 when the request was done; it is released then, and *status tells how it went. */
static int is_done(const tw_members *members, void **request, int outgoing, size_t *size, tw_status *status)
{
    tw_comm *comm = members->channel->comm;
    if (!comm->ops.poll(comm->self, *request, 0)) return 0;
    uint32_t check;
    *status = comm->ops.wait(comm->self, *request, 0, size, &check);
    *request = NULL;
    tw_numbers_ended(members->channel->numbers, outgoing, *status);
    if (*status != TW_OK) return 1;
    if (outgoing) *size = message_bytes(members);
    tw_counters_add(&members->channel->counters, outgoing, *size);
    tw_counters_add(&comm->counters, outgoing, *size);
    return 1;
}

/* --- who is there ------------------------------------------------------------------------------------------------ */

int tw_members_has(const tw_members *members, int rank)
{
    return !(members->dead[rank / 8] >> rank % 8 & 1);
}

void tw_members_lose(tw_members *members, int rank)
{
    if (!tw_members_has(members, rank)) return;
    members->dead[rank / 8] |= (unsigned char)(1 << rank % 8);
    members->lost++;
    members->news++;
    members->round = members->now;
    members->channel->comm->maimed = 1;
    if (members->peers) end_talk(members, &members->peers[rank]);
}

void tw_members_await(tw_members *members, int rank)
{
    tw_wait *wait = &members->peers[rank].wait;
    tw_wait_begin(comm_of(members), wait);
    wait->silence = members->deadline; /* over any transport: its own messages are signs of life */
    wait->hears = 1;
}

int tw_members_silent(const tw_members *members, int rank)
{
    return tw_wait_is_over(&members->peers[rank].wait);
}

tw_status tw_members_give_up(tw_members *members, int rank)
{
    tw_members_lose(members, rank); /* which may have words of its own */
    tw_status status = tw_wait_fail(comm_of(members), rank, &members->peers[rank].wait);
    tw_log(TW_LOG_WARNING, "the gossip gives a rank up: %s", tw_last_error());
    return status;
}

/* --- listening --------------------------------------------------------------------------------------------------- */

static tw_status check_news(const tw_members *members, const unsigned char *message, size_t size, int sender)
{
    news head = {.sender = 0};
    size_t bytes = message_bytes(members);
    int spare = members->size % 8;
    if (size == bytes) memcpy(&head, message, NEWS);
    if (size != bytes || memcmp(head.magic, magic, sizeof magic) != 0 || head.version != VERSION ||
        head.crc != tw_crc32c(0, message + CHECKED, size - CHECKED) || head.sender != (uint32_t)sender ||
        head.committed > 1 || head.round > LAST_ROUND || (spare && message[bytes - 1] >> spare))
        return tw_fail(TW_ERROR_PACKET, "what rank %d sent says nothing that could be of who is there", sender);
    return TW_OK;
}

static int count_bits(const unsigned char *mask, size_t bytes)
{
    int count = 0;
    for (size_t i = 0; i < bytes; i++) count += __builtin_popcount(mask[i]);
    return count;
}

/* What one rank that is there knows, all know. (Who has committed may not have heard of the last losses, and need not.)
 */
static tw_status members_hear(tw_members *members, int sender, size_t size)
{
    tw_peer *peer = &members->peers[sender];
    const unsigned char *mask = peer->inbox + NEWS;
    news head;
    TW_TRY(check_news(members, peer->inbox, size, sender));
    memcpy(&head, peer->inbox, NEWS);
    tw_members_await(members, sender);
    peer->round = head.round;
    peer->committed = head.committed != 0;
    peer->lost = count_bits(mask, mask_bytes(members));
    if (peer->committed) return TW_OK;
    members->refused |= mask[members->rank / 8] >> members->rank % 8 & 1;
    for (int rank = 0; rank < members->size; rank++)
        if (rank != members->rank && mask[rank / 8] >> rank % 8 & 1) tw_members_lose(members, rank);
    return TW_OK;
}

static tw_status listen(tw_members *members, int rank)
{
    const tw_comm *comm = comm_of(members);
    tw_peer *peer = &members->peers[rank];
    while (tw_members_has(members, rank)) {
        size_t size = 0;
        tw_status status = TW_OK;
        if (!peer->receive)
            status = comm->ops.start_recv(comm->self, rank, members->channel->number + 1, peer->inbox,
                                          message_bytes(members), &peer->receive);
        else if (is_done(members, &peer->receive, 0, &size, &status) && status == TW_OK)
            status = members_hear(members, rank, size);
        else if (peer->receive)
            return TW_OK;
        if (status == TW_ERROR_PEER)
            tw_members_lose(members, rank);
        else
            TW_TRY(status);
    }
    return TW_OK;
}

/* --- telling ----------------------------------------------------------------------------------------------------- */

static void write_news(const tw_members *members, unsigned char *message)
{
    news head = {.version = VERSION,
                 .sender = (uint32_t)members->rank,
                 .round = members->round,
                 .committed = (uint64_t)members->committed};
    memcpy(head.magic, magic, sizeof magic);
    memcpy(message, &head, NEWS);
    memcpy(message + NEWS, members->dead, mask_bytes(members));
    head.crc = tw_crc32c(0, message + CHECKED, message_bytes(members) - CHECKED);
    memcpy(message, &head, NEWS);
}

/* Whether there is anything to tell, and the last message has gone. A lost rank is told so once, if it can be. */
static int may_speak(tw_members *members, int rank)
{
    tw_peer *peer = &members->peers[rank];
    size_t size;
    tw_status status = TW_OK;
    if (peer->send) {
        if (!is_done(members, &peer->send, 1, &size, &status)) return 0;
        if (status == TW_OK) peer->delivered = peer->sent;
    }
    if (status == TW_ERROR_PEER) tw_members_lose(members, rank);
    if (!tw_members_has(members, rank)) return peer->sent != UINT64_MAX;
    return peer->delivered != members->news || tw_clock() - peer->told >= BEAT * members->deadline;
}

static tw_status members_speak(tw_members *members, int rank)
{
    const tw_comm *comm = comm_of(members);
    tw_peer *peer = &members->peers[rank];
    if (!may_speak(members, rank)) return TW_OK;
    write_news(members, peer->outbox);
    peer->sent = tw_members_has(members, rank) ? members->news : UINT64_MAX;
    peer->told = tw_clock();
    tw_status status =
        comm->ops.start_send(comm->self, rank, members->channel->number + 1, peer->outbox, message_bytes(members),
                             tw_crc32c(0, peer->outbox, message_bytes(members)), &peer->send);
    if (status == TW_OK) tw_numbers_started(members->channel->numbers, 1);
    if (status != TW_ERROR_PEER) return status;
    tw_members_lose(members, rank);
    return TW_OK;
}

/* All waits have gone on since the last time, as far as this process was awake. */
static void look_at_others(tw_members *members)
{
    double now = tw_clock(), gap = fmin(now - members->tended, LONGEST_GAP * members->deadline);
    members->tended = now;
    for (int rank = 0; rank < members->size; rank++) {
        tw_wait *wait = &members->peers[rank].wait;
        tw_wait_spend(wait, gap);
        if (rank != members->rank && tw_members_has(members, rank)) tw_wait_look(comm_of(members), rank, wait);
    }
}

tw_status tw_members_tend(tw_members *members)
{
    TW_TRY(open_peers(members));
    look_at_others(members);
    for (int rank = 0; rank < members->size; rank++)
        if (rank != members->rank) TW_TRY(listen(members, rank));
    for (int rank = 0; rank < members->size; rank++)
        if (rank != members->rank) TW_TRY(members_speak(members, rank));
    return TW_OK;
}

/* --- agreeing ---------------------------------------------------------------------------------------------------- */

/* Waits a little for a message of `rank`, longer each time that none comes. */
static void pause_for(const tw_members *members, int rank, double *pause)
{
    const tw_comm *comm = comm_of(members);
    void *request = members->peers[rank].receive;
    if (request && !comm->ops.poll(comm->self, request, *pause))
        *pause = fmin(2 * *pause, LONGEST_PAUSE * members->deadline);
    else
        *pause = FIRST_PAUSE;
}

/* The first rank that is there and does not know what this one does; -1: none. */
static int find_undecided(const tw_members *members)
{
    for (int rank = 0; rank < members->size; rank++)
        if (rank != members->rank && tw_members_has(members, rank) && members->peers[rank].lost != members->lost)
            return rank;
    return -1;
}

static int has_anyone_committed(const tw_members *members)
{
    int any = 0;
    for (int rank = 0; rank < members->size; rank++)
        any |= tw_members_has(members, rank) && members->peers[rank].committed;
    return any;
}

/* Whether the others have given this rank up. To one that is cut off itself, they look lost. */
static tw_status check_self(const tw_members *members)
{
    if (members->refused)
        return tw_fail(TW_ERROR_PEER,
                       "the others went on without rank %d, which was silent for the timeout of %g seconds, or kept "
                       "one of them waiting beyond its patience",
                       members->rank, members->deadline);
    const tw_comm *comm = comm_of(members);
    void *request = NULL;
    unsigned char nothing;
    TW_TRY(tw_channel_check(members->channel));
    TW_TRY(comm->ops.start_recv(comm->self, members->rank, members->channel->number + 1, &nothing, 1, &request));
    members_take_back(members, &request, 0);
    return TW_OK;
}

/* And so they do to one that was given up, or to the smaller part of a broken network. */
static tw_status check_quorum(const tw_members *members)
{
    int left = members->size - members->lost, before = members->size - members->agreed;
    if (2 * left > before || (2 * left == before && tw_members_has(members, members->lowest))) return TW_OK;
    return tw_fail(TW_ERROR_PEER, "this rank, %d, has lost %d of %d ranks, too many to go on without them",
                   members->rank, members->lost - members->agreed, before);
}

static tw_status go_on_without_lost(tw_members *members, uint64_t *round)
{
    TW_TRY(check_quorum(members));
    *round = members->round;
    for (int rank = 0; rank < members->size; rank++)
        if (rank != members->rank && tw_members_has(members, rank) && members->peers[rank].round > *round)
            *round = members->peers[rank].round;
    ++*round;
    members->agreed = members->lost;
    while (!tw_members_has(members, members->lowest)) members->lowest++;
    return TW_OK;
}

tw_status tw_members_agree(tw_members *members, uint64_t *round)
{
    double pause = FIRST_PAUSE;
    TW_TRY(tw_members_tend(members));
    for (int rank = 0; rank < members->size; rank++) tw_members_await(members, rank);
    for (;;) {
        TW_TRY(tw_members_tend(members));
        if (has_anyone_committed(members)) {
            tw_members_commit(members);
            return TW_OK;
        }
        TW_TRY(check_self(members));
        int rank = find_undecided(members);
        if (rank < 0) return go_on_without_lost(members, round);
        if (tw_members_silent(members, rank))
            (void)tw_members_give_up(members, rank);
        else
            pause_for(members, rank, &pause);
    }
}

/* The first rank that is there and has not said that it has committed; -1: none. */
static int find_uncommitted(const tw_members *members)
{
    for (int rank = 0; rank < members->size; rank++)
        if (rank != members->rank && tw_members_has(members, rank) && !members->peers[rank].committed) return rank;
    return -1;
}

void tw_members_commit(tw_members *members)
{
    members->committed = 1;
    members->news++;
}

tw_status tw_members_spread(tw_members *members)
{
    double until = tw_clock() + members->deadline / 2, pause = FIRST_PAUSE;
    int rank;
    do {
        TW_TRY(tw_members_tend(members));
        rank = find_uncommitted(members);
        if (rank >= 0) pause_for(members, rank, &pause);
    } while (rank >= 0 && !members->refused && tw_clock() < until);
    return check_self(members);
}

void tw_members_resign(tw_members *members)
{
    char reason[TW_REASON_BYTES]; /* for which it leaves, and which stays this thread's last error */
    snprintf(reason, sizeof reason, "%s", tw_last_error());
    members->dead[members->rank / 8] |= (unsigned char)(1 << members->rank % 8);
    members->news++;
    (void)tw_members_tend(members);
    (void)tw_fail(TW_ERROR_PEER, "%s", reason);
}
