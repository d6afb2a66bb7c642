/* One round: a message to each partner and one from each. */
#include "channel.h"
#include "error.h"
#include "gossip.h"
#include "gossip_pass.h"
#include "kernels.h"
#include "memory.h"
#include "smaller.h"
#include "thread.h"

#include <math.h>
#include <string.h>

/* What a message begins with, before the bits of who has finished and, behind padding, the weights. Every field is on
 * its natural alignment, so the struct has no holes. A message without weights says that its sender and all partners of
 * the sender have finished: averaging would change nothing any more, only the rumour is carried on. */
typedef struct header {
    char magic[4];
    uint32_t version;
    uint32_t sender;
    uint32_t unused; /* 0 */
    uint64_t round;
    uint64_t stop;
    uint64_t told;
    double interval;
} header;

enum { HEADER = 48, VERSION = 2, ALIGNMENT = 64, BLOCK = 4 << 10 /* elements: they stay in the nearest cache */ };
_Static_assert(sizeof(header) == HEADER, "the header has no holes");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian and memory is copied onto it");

#define LONGEST_INTERVAL 1e9 /* seconds */
/* A choice of the last round is everywhere after about half as many rounds as there are ranks, and if the ring is
 * shuffled, after a number left to chance: not one run in 10^100 takes so many beyond that. */
#define MOST_AHEAD 1000

static const char magic[4] = {'T', 'W', 'G', 'O'};

static size_t mask_bytes(const tw_gossip *gossip)
{
    return ((size_t)gossip->size + 7) / 8;
}

/* Bytes before the weights. */
static size_t bare_bytes(const tw_gossip *gossip)
{
    return (HEADER + mask_bytes(gossip) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t full_bytes(const tw_gossip *gossip)
{
    return bare_bytes(gossip) + gossip->elements * sizeof(float);
}

float *tw_gossip_payload(const tw_gossip *gossip, unsigned char *message)
{
    return (float *)(void *)(message + bare_bytes(gossip));
}

tw_status tw_gossip_create_rounds(tw_gossip *gossip, int group, int shuffled, int64_t seed)
{
    TW_TRY(tw_schedule_create(&gossip->schedule, gossip->size, group, shuffled, (uint64_t)seed));
    size_t most = (size_t)tw_schedule_most(&gossip->schedule);
    gossip->most_partners = (int)most;
    TW_TRY(tw_allocate(mask_bytes(gossip), 1, &gossip->rumour.finished));
    TW_TRY(tw_allocate(full_bytes(gossip), 1, &gossip->outgoing));
    TW_TRY(tw_allocate(most, sizeof *gossip->incoming, &gossip->incoming));
    TW_TRY(tw_allocate(most, sizeof *gossip->received, &gossip->received));
    TW_TRY(tw_allocate(most, sizeof *gossip->theirs, &gossip->theirs));
    TW_TRY(tw_allocate(most, sizeof *gossip->partners, &gossip->partners));
    for (size_t i = 0; i < most; i++) TW_TRY(tw_allocate(full_bytes(gossip), 1, &gossip->incoming[i]));
    return TW_OK;
}

void tw_gossip_release_messages(tw_gossip *gossip)
{
    for (int i = 0; gossip->incoming && i < gossip->most_partners; i++) tw_free(gossip->incoming[i]);
    tw_free(gossip->rumour.finished);
    tw_free(gossip->outgoing);
    tw_free(gossip->incoming);
    tw_free(gossip->received);
    tw_free(gossip->theirs);
    tw_free(gossip->partners);
}

/* --- writing -------------------------------------------------------------------------------------------------- */

static int is_set(const unsigned char *mask, int rank)
{
    return mask[rank / 8] >> rank % 8 & 1;
}

static int has_finished(const tw_gossip *gossip, int rank)
{
    return is_set(gossip->rumour.finished, rank);
}

/* 1 if nobody whom this round joins with this rank has new steps to share. */
static int is_bare(const tw_gossip *gossip, int partners)
{
    int finished = has_finished(gossip, gossip->rank);
    for (int i = 0; i < partners; i++) finished &= has_finished(gossip, gossip->partners[i]);
    return finished;
}

/* What stands before the weights. */
static void write_header(tw_gossip *gossip, uint64_t round)
{
    unsigned char *message = gossip->outgoing;
    const tw_rumour *rumour = &gossip->rumour;
    header head = {.version = VERSION,
                   .sender = (uint32_t)gossip->rank,
                   .round = round,
                   .stop = rumour->stop,
                   .told = rumour->told,
                   .interval = rumour->interval};
    memcpy(head.magic, magic, sizeof magic);
    memcpy(message, &head, HEADER);
    memcpy(message + HEADER, rumour->finished, mask_bytes(gossip));
}

/* Nobody but the worker and this thread touches the weights; the worker of a synchronous scheme waits. */
static void begin_pass(tw_gossip *gossip, tw_pass *pass)
{
    *pass = (tw_pass){0};
    if (gossip->ops->exchange) return;
    tw_mutex_lock(&gossip->lock);
    tw_pass_begin(gossip, pass);
    tw_mutex_unlock(&gossip->lock);
}

/* Copies weights into the message; while they are in the cache, looks whether they are finite and adds them to the
 * message's checksum. */
static int copy_block(tw_gossip *gossip, size_t start, size_t count, uint32_t *check)
{
    float *dst = tw_gossip_payload(gossip, gossip->outgoing);
    int finite = 1;
    for (size_t end = start + count; start < end; start += BLOCK) {
        size_t some = tw_smaller(end - start, BLOCK);
        memcpy(dst + start, gossip->weights + start, some * sizeof *dst);
        finite &= tw_kernels_best()->all_finite(dst + start, some);
        *check = tw_crc32c(*check, dst + start, some * sizeof *dst);
    }
    return finite;
}

static tw_status write_weights(tw_gossip *gossip, uint32_t *check)
{
    tw_pass pass;
    size_t start, count;
    int finite = 1;
    begin_pass(gossip, &pass);
    while ((count = tw_pass_next(gossip, &pass, &start)) > 0) finite &= copy_block(gossip, start, count, check);
    return finite ? TW_OK : tw_fail(TW_ERROR_NONFINITE, "this rank's weights are not finite any more");
}

/* Completes the outgoing message. */
static tw_status write_message(tw_gossip *gossip, uint64_t round, int bare, uint32_t *check)
{
    write_header(gossip, round);
    *check = tw_crc32c(0, gossip->outgoing, bare_bytes(gossip));
    return bare ? TW_OK : write_weights(gossip, check);
}

/* --- reading -------------------------------------------------------------------------------------------------- */

/* The last round is one that all will have heard of, and rank 0's first choice. */
static int is_stop(const tw_gossip *gossip, uint64_t stop, uint64_t round)
{
    if (stop == TW_NO_STOP) return 1;
    uint64_t own = gossip->rumour.stop;
    return stop >= round && stop - round <= (uint64_t)gossip->size + MOST_AHEAD && (own == TW_NO_STOP || stop == own);
}

/* Who sends no weights knows that this rank does not need them. */
static tw_status check_bare(const tw_gossip *gossip, const header *head, const unsigned char *mask)
{
    if (is_set(mask, (int)head->sender) && is_set(mask, gossip->rank)) return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "rank %u's message of round %llu is without weights, though not all have finished",
                   head->sender, (unsigned long long)head->round);
}

static tw_status check_rumour(const tw_gossip *gossip, const header *head, const unsigned char *mask, int sender)
{
    int unused = gossip->size % 8 ? mask[mask_bytes(gossip) - 1] >> gossip->size % 8 : 0;
    if (unused || !(head->interval >= 0 && head->interval <= LONGEST_INTERVAL) || head->told > head->round ||
        !is_stop(gossip, head->stop, head->round))
        return tw_fail(TW_ERROR_PACKET, "rank %d's message of round %llu says what cannot be", sender,
                       (unsigned long long)head->round);
    return TW_OK;
}

static tw_status check_message(const tw_gossip *gossip, const unsigned char *message, size_t size, int sender,
                               uint64_t round)
{
    header head;
    if (size != bare_bytes(gossip) && size != full_bytes(gossip))
        return tw_fail(TW_ERROR_PACKET, "rank %d's message has %zu bytes; want %zu or %zu%s", sender, size,
                       bare_bytes(gossip), full_bytes(gossip),
                       gossip->ops->exchange ? ": in a synchronous scheme every rank must add as often as the others"
                                             : "");
    memcpy(&head, message, HEADER);
    if (memcmp(head.magic, magic, sizeof magic) != 0 || head.version != VERSION || head.unused != 0)
        return tw_fail(TW_ERROR_PACKET, "what rank %d sent is no gossip message of version %d", sender, VERSION);
    if (head.sender != (uint32_t)sender || head.round != round)
        return tw_fail(TW_ERROR_PACKET, "rank %u's message of round %llu came in place of rank %d's of round %llu",
                       head.sender, (unsigned long long)head.round, sender, (unsigned long long)round);
    if (size == bare_bytes(gossip)) TW_TRY(check_bare(gossip, &head, message + HEADER));
    return check_rumour(gossip, &head, message + HEADER, sender);
}

/* Takes over what the sender knows and this rank does not. */
static void gossip_message_hear(tw_gossip *gossip, const unsigned char *message)
{
    tw_rumour *own = &gossip->rumour;
    header head;
    memcpy(&head, message, HEADER);
    for (size_t i = 0; i < mask_bytes(gossip); i++) own->finished[i] |= message[HEADER + i];
    if (head.stop != TW_NO_STOP) own->stop = head.stop;
    int faster = head.interval > 0 && (own->interval == 0 || head.interval < own->interval);
    if (!faster && !(head.interval == own->interval && head.told > own->told)) return;
    own->interval = head.interval;
    own->told = head.told;
}

/* Checks and hears every message, but for the weights: *count of them are listed in theirs. */
static tw_status read_messages(tw_gossip *gossip, uint64_t round, int partners, size_t *count)
{
    *count = 0;
    for (int i = 0; i < partners; i++) {
        unsigned char *message = gossip->incoming[i];
        TW_TRY(check_message(gossip, message, gossip->received[i], gossip->partners[i], round));
        gossip_message_hear(gossip, message);
        if (gossip->received[i] == full_bytes(gossip)) gossip->theirs[(*count)++] = tw_gossip_payload(gossip, message);
    }
    return TW_OK;
}

/* --- averaging ------------------------------------------------------------------------------------------------ */

/* Whose message the weights are in. */
static int sender_of(const tw_gossip *gossip, const float *weights)
{
    int i = 0;
    while (tw_gossip_payload(gossip, gossip->incoming[i]) != weights) i++;
    return gossip->partners[i];
}

static tw_status check_theirs(const tw_gossip *gossip, const tw_average *average, size_t start, size_t count)
{
    for (size_t p = 0; p < average->partners; p++)
        if (!tw_kernels_best()->all_finite(average->theirs[p] + start, count))
            return tw_fail(TW_ERROR_NONFINITE, "rank %d's weights are not finite any more",
                           sender_of(gossip, average->theirs[p]));
    return TW_OK;
}

/* Nothing that is not finite gets into the weights: each block is looked at before it is drawn. */
static tw_status draw_block(const tw_gossip *gossip, tw_average *average, float *dst, size_t start, size_t count)
{
    for (size_t end = start + count; start < end; start += BLOCK) {
        size_t some = tw_smaller(end - start, BLOCK);
        TW_TRY(check_theirs(gossip, average, start, some));
        tw_kernels_best()->averaging->draw(average, dst, start, some, dst == gossip->weights);
    }
    return TW_OK;
}

/* From the mean of the partners' weights: the correction leads a partners/(partners + 1)th of the way there. */
static double distance_of(const tw_average *average, int partners)
{
    double squares[16];
    memcpy(squares, average->squares, sizeof squares);
    return sqrt(tw_kernels_fold(squares)) * (partners + 1) / partners;
}

/* Adds to dst, if these are the weights, or else sets it to, the sum over partners of (received - sent), times
 * 1/(partners + 1): uniform averaging in the difference form, which commutes with steps that are added meanwhile and
 * moves the mean of all by nothing. Those of the partners that sent no weights do not average with this rank. */
static tw_status gossip_message_draw(tw_gossip *gossip, float *dst, int partners, size_t senders)
{
    tw_pass pass;
    size_t start, count;
    tw_average average = {.theirs = (const float *const *)gossip->theirs,
                          .partners = senders,
                          .sent = tw_gossip_payload(gossip, gossip->outgoing),
                          .share = 1.0f / (float)(partners + 1)};
    begin_pass(gossip, &pass);
    while ((count = tw_pass_next(gossip, &pass, &start)) > 0) {
        tw_status status = draw_block(gossip, &average, dst, start, count);
        if (status == TW_OK) continue;
        tw_pass_break(gossip, &pass);
        return status;
    }
    gossip->distance = distance_of(&average, partners);
    return TW_OK;
}

/* --- the round ------------------------------------------------------------------------------------------------ */

static tw_status gossip_message_exchange(tw_gossip *gossip, int partners, size_t size, uint32_t check)
{
    for (int i = 0; i < partners; i++)
        tw_channel_start_receive(gossip->view, gossip->partners[i], gossip->incoming[i], full_bytes(gossip),
                                 &gossip->received[i]);
    for (int i = 0; i < partners; i++)
        tw_channel_start_send_noted(gossip->view, gossip->partners[i], gossip->outgoing, size, check);
    return tw_channel_finish(gossip->view);
}

static uint64_t received_bytes(const tw_gossip *gossip, int partners)
{
    uint64_t bytes = 0;
    for (int i = 0; i < partners; i++) bytes += gossip->received[i];
    return bytes;
}

tw_status tw_gossip_meet(tw_gossip *gossip, uint64_t round, const float **correction)
{
    int partners = tw_schedule_partners(&gossip->schedule, round, gossip->rank, gossip->partners);
    int bare = is_bare(gossip, partners);
    size_t senders;
    uint32_t check;
    if (correction) *correction = NULL;
    if (partners == 0) return TW_OK;
    TW_TRY(write_message(gossip, round, bare, &check));
    TW_TRY(gossip_message_exchange(gossip, partners, bare ? bare_bytes(gossip) : full_bytes(gossip), check));
    tw_charge(gossip->elements, received_bytes(gossip, partners));
    TW_TRY(read_messages(gossip, round, partners, &senders));
    if (bare || senders == 0) return TW_OK;
    if (correction) *correction = gossip->theirs[0];
    return gossip_message_draw(gossip, correction ? gossip->theirs[0] : gossip->weights, partners, senders);
}
