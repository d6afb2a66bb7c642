#include "agreement.h"

#include "channel.h"
#include "error.h"

#include <stdio.h>
#include <string.h>

#define NOBODY UINT32_MAX

/* What a rank knows of those it has heard of: whether any could not make its own, and whether those that could have
 * made the same. Of two ranks that differ in that, one is not the lowest's like. */
typedef struct introduction {
    uint32_t failed, status;  /* the lowest rank that failed, or NOBODY, and how */
    uint32_t lowest, digest;  /* the lowest of the others, or NOBODY, and what it has made: spec and tensors */
    uint32_t odd, odd_digest; /* the lowest that has made something else, or NOBODY, and that */
} introduction;

/* The release of the library comes in, too: its defaults may differ. */
static uint32_t digest(const char *object, const char *spec, uint32_t code, const tw_tensor *tensors, size_t count)
{
    uint32_t crc = tw_crc32c(code, tw_version(), strlen(tw_version()) + 1);
    crc = tw_crc32c(crc, object, strlen(object) + 1);
    crc = tw_crc32c(crc, spec, strlen(spec) + 1);
    for (size_t i = 0; i < count; i++) {
        crc = tw_crc32c(crc, tensors[i].name, strlen(tensors[i].name) + 1);
        crc = tw_crc32c(crc, tensors[i].shape, tensors[i].dims * sizeof *tensors[i].shape);
    }
    return crc;
}

/* A rank and what it has made join what is known. */
static void add_maker(introduction *known, uint32_t rank, uint32_t digest)
{
    if (rank < known->lowest) {
        uint32_t later = known->lowest, other = known->digest;
        known->lowest = rank;
        known->digest = digest;
        if (known->odd != NOBODY && known->odd_digest == digest) known->odd = NOBODY;
        if (later != NOBODY) add_maker(known, later, other);
    } else if (digest != known->digest && rank < known->odd) {
        known->odd = rank;
        known->odd_digest = digest;
    }
}

static void agreement_learn(introduction *known, const introduction *heard)
{
    if (heard->failed < known->failed) {
        known->failed = heard->failed;
        known->status = heard->status;
    }
    if (heard->lowest != NOBODY) add_maker(known, heard->lowest, heard->digest);
    if (heard->odd != NOBODY) add_maker(known, heard->odd, heard->odd_digest);
}

static int is_rank(uint32_t rank, uint32_t ranks)
{
    return rank < ranks || rank == NOBODY;
}

static tw_status agreement_check(const introduction *heard, int sender, uint32_t ranks)
{
    int fails = heard->failed != NOBODY;
    if (tw_status_is_known(heard->status) && (heard->status != TW_OK) == fails && is_rank(heard->failed, ranks) &&
        is_rank(heard->lowest, ranks) && is_rank(heard->odd, ranks))
        return TW_OK;
    return tw_fail(TW_ERROR_PACKET,
                   "rank %d says what cannot be: that rank %u of %u failed with status %u, and ranks %u and %u did not",
                   sender, heard->failed, ranks, heard->status, heard->lowest, heard->odd);
}

/* By dissemination, as in tw_channel_barrier: N log N messages, where each telling each would take N * N. */
static tw_status agreement_introduce(tw_channel *channel, introduction *known)
{
    int ranks = channel->comm->size, self = channel->comm->rank;
    for (int step = 1; step < ranks; step *= 2) {
        introduction told = *known, heard;
        int sender = (self + ranks - step) % ranks;
        tw_channel_start_receive(channel, sender, &heard, sizeof heard, NULL);
        tw_channel_start_send(channel, (self + step) % ranks, &told, sizeof told);
        TW_TRY(tw_channel_finish(channel));
        tw_status status = agreement_check(&heard, sender, (uint32_t)ranks);
        if (status != TW_OK) return tw_channel_give_up(channel, status); /* the others wait for what it would tell */
        agreement_learn(known, &heard);
    }
    return tw_channel_finish(channel);
}

/* The first rank, in their order, that failed or differs from this one. */
static tw_status agreement_judge(const char *object, int self, uint32_t own, const introduction *all)
{
    uint32_t other = all->digest != own ? all->lowest : all->odd;
    if (all->failed != NOBODY && all->failed < other)
        return tw_fail((tw_status)all->status, "rank %u could not make its %s: %s", all->failed, object,
                       tw_status_sentence((tw_status)all->status));
    if (other == NOBODY) return TW_OK;
    return tw_fail(
        TW_ERROR_ARGUMENT,
        "rank %d and rank %u differ in spec, tensors, or release of thinwire or of a plug-in; these must be the same "
        "everywhere",
        self, other);
}

static tw_status agree_on(tw_channel *channel, const char *object, uint32_t own)
{
    uint32_t self = (uint32_t)channel->comm->rank;
    introduction known = {.failed = NOBODY, .lowest = self, .digest = own, .odd = NOBODY};
    TW_TRY(agreement_introduce(channel, &known));
    return agreement_judge(object, (int)self, own, &known);
}

tw_status tw_agree(tw_channel *channel, const char *object, tw_status prepared, const char *spec, uint32_t code,
                   const tw_tensor *tensors, size_t count)
{
    if (prepared == TW_OK) return agree_on(channel, object, digest(object, spec, code, tensors, count));
    char text[TW_REASON_BYTES];
    introduction known = {
        .failed = (uint32_t)channel->comm->rank, .status = (uint32_t)prepared, .lowest = NOBODY, .odd = NOBODY};
    snprintf(text, sizeof text, "%s", tw_last_error());
    (void)agreement_introduce(channel, &known);
    return tw_fail(prepared, "%s", text); /* the others' view of it is no news here */
}
