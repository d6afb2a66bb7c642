/* What one rank hands to the others whole: in blocks, packed by the rank that has it, passed on as they are, and read
 * by each of the others while the next one is on its way. */
#include "channel.h"
#include "error.h"
#include "held.h"
#include "planes.h"

#include <thinwire/thinwire_outer.h>

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

static tw_status packed_hand_over(tw_channel *channel, int root, void *numbers, size_t count, size_t width)
{
    size_t bytes = 0, most = tw_planes_bound(count, width);
    const void *block;
    int gives = channel->comm->rank == root;
    TW_TRY(tw_channel_reserve(channel, most)); /* where the root has its packet, and the others the root's */
    if (gives) bytes = tw_planes_write(channel->scratch, numbers, count, width);
    TW_TRY(tw_channel_broadcast(channel, root, channel->scratch, bytes, most, &block, &bytes));
    const char *wrong = gives ? NULL : tw_planes_read(block, bytes, numbers, count, width);
    if (!wrong) return TW_OK;
    return tw_channel_give_up(channel, tw_fail(TW_ERROR_PACKET, "a block of numbers from rank %d cannot be: %s",
                                               tw_comm_name(channel->comm, root), wrong));
}

tw_status tw_comm_broadcast_packed(tw_comm *comm, int root, void *data, size_t count, size_t width)
{
    unsigned char *numbers = data;
    TW_TRY(packed_check(comm, root, data, count, width));
    size_t most = TW_PLANES_BLOCK / width;
    for (size_t at = 0; comm->size > 1 && at < count; at += most) {
        size_t some = count - at < most ? count - at : most;
        TW_TRY(packed_hand_over(comm->channel, root, numbers + at * width, some, width));
    }
    return TW_OK;
}
