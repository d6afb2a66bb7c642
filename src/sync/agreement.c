#include "agreement.h"

#include "channel.h"
#include "error.h"

#include <stdio.h>
#include <string.h>

typedef struct introduction {
    uint32_t status; /* of what the rank did alone */
    uint32_t digest; /* of its spec and tensors, if that went well */
} introduction;

/* The release of the library comes in, too: its defaults may differ. */
static uint32_t digest(const char *object, const char *spec, const tw_tensor *tensors, size_t count)
{
    uint32_t crc = tw_crc32c(0, tw_version(), strlen(tw_version()) + 1);
    crc = tw_crc32c(crc, object, strlen(object) + 1);
    crc = tw_crc32c(crc, spec, strlen(spec) + 1);
    for (size_t i = 0; i < count; i++) {
        crc = tw_crc32c(crc, tensors[i].name, strlen(tensors[i].name) + 1);
        crc = tw_crc32c(crc, tensors[i].shape, tensors[i].dims * sizeof *tensors[i].shape);
    }
    return crc;
}

static tw_status compare(const char *object, int self, introduction own, introduction theirs, int rank)
{
    if (!tw_status_is_known(theirs.status))
        return tw_fail(TW_ERROR_PACKET, "rank %d introduces itself with status %u, which there is not", rank,
                       theirs.status);
    if (theirs.status != TW_OK)
        return tw_fail((tw_status)theirs.status, "rank %d could not make its %s: %s", rank, object,
                       tw_status_sentence((tw_status)theirs.status));
    if (theirs.digest != own.digest)
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "rank %d and rank %d differ in spec, tensors or release of thinwire; these must be the same everywhere",
            self, rank);
    return TW_OK;
}

static tw_status introduce(tw_channel *channel, const char *object, introduction own)
{
    const void *const *packets;
    const size_t *sizes;
    TW_TRY(tw_channel_allgather(channel, &own, sizeof own, sizeof own, &packets, &sizes));
    for (int rank = 0; rank < channel->comm->size; rank++) {
        introduction theirs;
        if (sizes[rank] != sizeof theirs)
            return tw_fail(TW_ERROR_PACKET, "rank %d introduces itself in %zu bytes instead of %zu", rank, sizes[rank],
                           sizeof theirs);
        memcpy(&theirs, packets[rank], sizeof theirs);
        TW_TRY(compare(object, channel->comm->rank, own, theirs, rank));
    }
    return TW_OK;
}

tw_status tw_agree(tw_channel *channel, const char *object, tw_status prepared, const char *spec,
                   const tw_tensor *tensors, size_t count)
{
    if (prepared == TW_OK)
        return introduce(channel, object, (introduction){TW_OK, digest(object, spec, tensors, count)});
    char text[TW_REASON_BYTES];
    snprintf(text, sizeof text, "%s", tw_last_error());
    (void)introduce(channel, object, (introduction){.status = (uint32_t)prepared});
    return tw_fail(prepared, "%s", text); /* the others' view of it is no news here */
}
