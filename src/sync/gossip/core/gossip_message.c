/* One round: a message to each partner and one from each. */
#include "channel.h"
#include "charge.h"
#include "error.h"
#include "gossip.h"
#include "kernels.h"
#include "memory.h"

#include <math.h>
#include <string.h>

/* What a message begins with, before the bits of who has finished and, behind padding, the weights. Every field is on
 * its natural alignment, so the struct has no holes. A message without weights says that its sender and all partners of
 * the sender have finished: averaging would change nothing any more, only the rumour is carried on. */
typedef struct header {
    char magic[4];
    uint32_t crc; /* CRC-32C of all that follows, up to the message's end */
    uint32_t version;
    uint32_t sender;
    uint64_t round;
    uint64_t stop;
    uint64_t told;
    double interval;
} header;

enum { HEADER = 48, CHECKED = 8, VERSION = 1, ALIGNMENT = 64 };
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

tw_status tw_gossip_create_messages(tw_gossip *gossip)
{
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

static int has_finished(const tw_gossip *gossip, int rank)
{
    return gossip->rumour.finished[rank / 8] >> rank % 8 & 1;
}

/* 1 if nobody whom this round joins with this rank has new steps to share. */
static int is_bare(const tw_gossip *gossip, int partners)
{
    int finished = has_finished(gossip, gossip->rank);
    for (int i = 0; i < partners; i++) finished &= has_finished(gossip, gossip->partners[i]);
    return finished;
}

/* Completes the outgoing message; returns its size. */
static size_t write_message(tw_gossip *gossip, uint64_t round, int bare)
{
    unsigned char *message = gossip->outgoing;
    const tw_rumour *rumour = &gossip->rumour;
    size_t size = bare ? bare_bytes(gossip) : full_bytes(gossip);
    header head = {.version = VERSION,
                   .sender = (uint32_t)gossip->rank,
                   .round = round,
                   .stop = rumour->stop,
                   .told = rumour->told,
                   .interval = rumour->interval};
    memcpy(head.magic, magic, sizeof magic);
    memcpy(message, &head, HEADER);
    memcpy(message + HEADER, rumour->finished, mask_bytes(gossip));
    head.crc = tw_crc32c(0, message + CHECKED, size - CHECKED);
    memcpy(message, &head, HEADER);
    return size;
}

/* --- reading -------------------------------------------------------------------------------------------------- */

/* The last round is one that all will have heard of, and rank 0's first choice. */
static int is_stop(const tw_gossip *gossip, uint64_t stop, uint64_t round)
{
    if (stop == TW_NO_STOP) return 1;
    uint64_t own = gossip->rumour.stop;
    return stop >= round && stop - round <= (uint64_t)gossip->size + MOST_AHEAD && (own == TW_NO_STOP || stop == own);
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
        return tw_fail(TW_ERROR_PACKET, "rank %d's message has %zu bytes; want %zu or %zu", sender, size,
                       bare_bytes(gossip), full_bytes(gossip));
    memcpy(&head, message, HEADER);
    if (memcmp(head.magic, magic, sizeof magic) != 0 || head.version != VERSION)
        return tw_fail(TW_ERROR_PACKET, "what rank %d sent is no gossip message of version %d", sender, VERSION);
    if (head.crc != tw_crc32c(0, message + CHECKED, size - CHECKED))
        return tw_fail(TW_ERROR_PACKET, "rank %d's message is damaged: its checksum does not fit", sender);
    if (head.sender != (uint32_t)sender || head.round != round)
        return tw_fail(TW_ERROR_PACKET, "rank %u's message of round %llu came in place of rank %d's of round %llu",
                       head.sender, (unsigned long long)head.round, sender, (unsigned long long)round);
    return check_rumour(gossip, &head, message + HEADER, sender);
}

/* Takes over what the sender knows and this rank does not. */
static void hear(tw_gossip *gossip, const unsigned char *message)
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

/* Checks and hears every message; theirs[i] receives partner i's weights, NULL if it sent none. */
static tw_status read_messages(tw_gossip *gossip, uint64_t round, int partners)
{
    for (int i = 0; i < partners; i++) {
        unsigned char *message = gossip->incoming[i];
        TW_TRY(check_message(gossip, message, gossip->received[i], gossip->partners[i], round));
        hear(gossip, message);
        float *weights = gossip->received[i] == full_bytes(gossip) ? tw_gossip_payload(gossip, message) : NULL;
        gossip->theirs[i] = weights;
        if (weights && !tw_kernels_best()->all_finite(weights, gossip->elements))
            return tw_fail(TW_ERROR_NONFINITE, "rank %d's weights are not finite any more", gossip->partners[i]);
    }
    return TW_OK;
}

/* --- averaging ------------------------------------------------------------------------------------------------ */

float *tw_gossip_mix(float *const *received, int partners, const float *sent, size_t elements)
{
    const tw_kernels *kernels = tw_kernels_best();
    float *correction = NULL;
    for (int i = 0; i < partners; i++) {
        if (!received[i]) continue;
        if (correction)
            kernels->add_difference(correction, received[i], sent, elements);
        else
            kernels->quantise->accumulate(correction = received[i], sent, elements, -1); /* exactly a difference */
    }
    if (correction) kernels->scale(correction, 1.0f / (float)(partners + 1), elements);
    return correction;
}

/* --- the round ------------------------------------------------------------------------------------------------ */

static tw_status exchange(tw_gossip *gossip, int partners, size_t size)
{
    for (int i = 0; i < partners; i++)
        tw_channel_start_receive(gossip->view, gossip->partners[i], gossip->incoming[i], full_bytes(gossip),
                                 &gossip->received[i]);
    for (int i = 0; i < partners; i++) tw_channel_start_send(gossip->view, gossip->partners[i], gossip->outgoing, size);
    return tw_channel_finish(gossip->view);
}

static uint64_t received_bytes(const tw_gossip *gossip, int partners)
{
    uint64_t bytes = 0;
    for (int i = 0; i < partners; i++) bytes += gossip->received[i];
    return bytes;
}

/* From the mean of the partners' weights: the correction leads a partners/(partners + 1)th of the way there. */
static double distance_of(const tw_gossip *gossip, const float *correction, int partners)
{
    return sqrt(tw_kernels_best()->sum_squares(correction, gossip->elements)) * (partners + 1) / partners;
}

tw_status tw_gossip_meet(tw_gossip *gossip, uint64_t round, float **correction)
{
    int partners = tw_schedule_partners(&gossip->schedule, round, gossip->rank, gossip->partners);
    int bare = is_bare(gossip, partners);
    const float *sent = tw_gossip_payload(gossip, gossip->outgoing);
    *correction = NULL;
    if (partners == 0) return TW_OK;
    if (!bare && !tw_kernels_best()->all_finite(sent, gossip->elements))
        return tw_fail(TW_ERROR_NONFINITE, "this rank's weights are not finite any more");
    TW_TRY(exchange(gossip, partners, write_message(gossip, round, bare)));
    tw_world_charge(gossip->elements, received_bytes(gossip, partners));
    TW_TRY(read_messages(gossip, round, partners));
    if (bare) return TW_OK;
    *correction = tw_gossip_mix(gossip->theirs, partners, sent, gossip->elements);
    if (*correction) gossip->distance = distance_of(gossip, *correction, partners);
    return TW_OK;
}
