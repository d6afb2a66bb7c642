#include "agreement.h"

#include "channel.h"
#include "error.h"

#include <stdio.h>
#include <string.h>

#define NOBODY UINT32_MAX

/* What a rank has made, in checksums. */
typedef struct making {
    uint32_t spec, names, shapes, release;
} making;

/* What a rank knows of those it has heard of: whether any could not make its own, and whether those that could have
 * made the same. Of two ranks that differ in that, one is not the lowest's like. */
typedef struct introduction {
    uint32_t failed, status; /* the lowest rank that failed, or NOBODY, and how */
    uint32_t lowest, odd;    /* the lowest of the others, or NOBODY, and the lowest that has made something else */
    making made, odd_made;   /* by these */
} introduction;

/* The release of the library comes in, too: its defaults may differ. */
static making describe(const char *object, const char *spec, uint32_t code, const tw_tensor *tensors, size_t count)
{
    making made = {.spec = tw_crc32c(0, object, strlen(object) + 1),
                   .release = tw_crc32c(code, tw_version(), strlen(tw_version()) + 1)};
    made.spec = tw_crc32c(made.spec, spec, strlen(spec) + 1);
    for (size_t i = 0; i < count; i++) {
        made.names = tw_crc32c(made.names, tensors[i].name, strlen(tensors[i].name) + 1);
        made.shapes = tw_crc32c(made.shapes, &tensors[i].dims, sizeof tensors[i].dims);
        made.shapes = tw_crc32c(made.shapes, tensors[i].shape, tensors[i].dims * sizeof *tensors[i].shape);
    }
    return made;
}

static int is_same(const making *one, const making *other)
{
    return memcmp(one, other, sizeof *one) == 0;
}

/* A rank and what it has made join what is known. */
static void add_maker(introduction *known, uint32_t rank, making made)
{
    if (rank < known->lowest) {
        uint32_t later = known->lowest;
        making other = known->made;
        known->lowest = rank;
        known->made = made;
        if (known->odd != NOBODY && is_same(&known->odd_made, &made)) known->odd = NOBODY;
        if (later != NOBODY) add_maker(known, later, other);
    } else if (!is_same(&made, &known->made) && rank < known->odd) {
        known->odd = rank;
        known->odd_made = made;
    }
}

static void agreement_learn(introduction *known, const introduction *heard)
{
    if (heard->failed < known->failed) {
        known->failed = heard->failed;
        known->status = heard->status;
    }
    if (heard->lowest != NOBODY) add_maker(known, heard->lowest, heard->made);
    if (heard->odd != NOBODY) add_maker(known, heard->odd, heard->odd_made);
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

/* "spec and names of tensors": what differs. */
static void name_differences(const making *one, const making *other, char *text, size_t room)
{
    const struct {
        int is_one;
        const char *name;
    } parts[] = {{one->spec != other->spec, "spec"},
                 {one->names != other->names, "names of tensors"},
                 {one->shapes != other->shapes, "shapes of tensors"},
                 {one->release != other->release, "release of thinwire or of a plug-in"}};
    size_t length = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].is_one)
            length += (size_t)snprintf(text + length, room - length, "%s%s", length ? " and " : "", parts[i].name);
}

/* The first rank, in their order, that failed or differs from this one. */
static tw_status agreement_judge(const char *object, int self, const making *own, const introduction *all)
{
    char what[128];
    int is_lowest = is_same(&all->made, own);
    uint32_t other = is_lowest ? all->odd : all->lowest;
    if (all->failed != NOBODY && all->failed < other)
        return tw_fail((tw_status)all->status, "rank %u could not make its %s: %s", all->failed, object,
                       tw_status_sentence((tw_status)all->status));
    if (other == NOBODY) return TW_OK;
    name_differences(own, is_lowest ? &all->odd_made : &all->made, what, sizeof what);
    return tw_fail(TW_ERROR_ARGUMENT, "rank %d and rank %u differ in %s; it must be the same everywhere", self, other,
                   what);
}

static tw_status agree_on(tw_channel *channel, const char *object, making own)
{
    uint32_t self = (uint32_t)channel->comm->rank;
    introduction known = {.failed = NOBODY, .lowest = self, .made = own, .odd = NOBODY};
    TW_TRY(agreement_introduce(channel, &known));
    return agreement_judge(object, (int)self, &own, &known);
}

tw_status tw_agree(tw_channel *channel, const char *object, tw_status prepared, const char *spec, uint32_t code,
                   const tw_tensor *tensors, size_t count)
{
    if (prepared == TW_OK) return agree_on(channel, object, describe(object, spec, code, tensors, count));
    char text[TW_REASON_BYTES];
    introduction known = {
        .failed = (uint32_t)channel->comm->rank, .status = (uint32_t)prepared, .lowest = NOBODY, .odd = NOBODY};
    snprintf(text, sizeof text, "%s", tw_last_error());
    (void)agreement_introduce(channel, &known);
    return tw_fail(prepared, "%s", text); /* the others' view of it is no news here */
}
