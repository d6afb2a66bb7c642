/* What one rank hands to the others whole: in blocks, packed by the rank that has it, passed on as they are, and read
 * by each of the others while the next one is on its way. */
#include "channel.h"
#include "error.h"
#include "held.h"
#include "planes.h"

#include <inttypes.h>
#include <string.h>
#include <thinwire/thinwire_outer.h>

typedef uint64_t packed_left; /* before each block: how many numbers are still to come, those of the block included */

static tw_status packed_check(tw_comm *comm, int root, const void *data, size_t count, size_t width)
{
    TW_TRY(tw_comm_need(comm));
    if (count) TW_TRY(tw_need(data, "data"));
    if (root < 0 || root >= comm->size)
        return tw_fail(TW_ERROR_ARGUMENT, "root %d is not a rank of this group of %d", root, comm->size);
    if (width < 1 || width > TW_PLANES_MOST)
        return tw_fail(TW_ERROR_ARGUMENT, "numbers of %zu bytes; want 1 to %d", width, TW_PLANES_MOST);
    if (count > SIZE_MAX / width) return tw_fail(TW_ERROR_ARGUMENT, "%zu is not a possible count", count);
    return TW_OK;
}

/* Numbers that are all alike take as many bytes however many they are, so that a block does not show its count. */
static tw_status packed_read(const unsigned char *packet, size_t bytes, int root, void *numbers, packed_left left,
                             size_t count, size_t width)
{
    packed_left given = left;
    const char *wrong = "it ends before its numbers do";
    if (bytes >= sizeof given) {
        memcpy(&given, packet, sizeof given);
        wrong = tw_planes_read(packet + sizeof given, bytes - sizeof given, numbers, count, width);
    }
    if (given != left)
        return tw_fail(TW_ERROR_PACKET,
                       "rank %d hands over %" PRIu64 " numbers more, and this rank awaits %" PRIu64
                       ": every rank must pass the same count",
                       root, given, left);
    return wrong ? tw_fail(TW_ERROR_PACKET, "a block of numbers from rank %d cannot be: %s", root, wrong) : TW_OK;
}

static tw_status packed_hand_over(tw_channel *channel, int root, void *numbers, packed_left left, size_t count,
                                  size_t width)
{
    /* Room for any block: one of another count is read so far that both can be told. */
    size_t bytes = 0, most = sizeof left + tw_planes_bound(TW_PLANES_BLOCK / width, width);
    const void *packet;
    int gives = channel->comm->rank == root;
    TW_TRY(tw_channel_reserve(channel, most)); /* where the root has its packet, and the others the root's */
    if (gives) {
        memcpy(channel->scratch, &left, sizeof left);
        bytes = sizeof left + tw_planes_write(channel->scratch + sizeof left, numbers, count, width);
    }
    TW_TRY(tw_channel_broadcast(channel, root, channel->scratch, bytes, most, &packet, &bytes));
    if (gives) return TW_OK;
    tw_status status = packed_read(packet, bytes, tw_comm_name(channel->comm, root), numbers, left, count, width);
    return status == TW_OK ? TW_OK : tw_channel_give_up(channel, status);
}

tw_status tw_comm_broadcast_packed(tw_comm *comm, int root, void *data, size_t count, size_t width)
{
    unsigned char none[TW_PLANES_MOST] = {0}, *numbers = count ? data : none;
    TW_TRY(packed_check(comm, root, data, count, width));
    size_t most = TW_PLANES_BLOCK / width, at = 0;
    if (comm->size == 1) return TW_OK;
    do { /* of no numbers, too, a block: others may await some */
        size_t some = count - at < most ? count - at : most;
        TW_TRY(packed_hand_over(comm->channel, root, numbers + at * width, count - at, some, width));
        at += some;
    } while (at < count);
    return TW_OK;
}
