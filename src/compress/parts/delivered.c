#include "delivered.h"

#include "error.h"

#include <stdio.h>

tw_status tw_delivered_blame(int rank, tw_status status)
{
    char sender[32];
    if (status != TW_ERROR_PACKET) return status;
    snprintf(sender, sizeof sender, "from rank %d", rank);
    return tw_fail_in(status, sender);
}

tw_status tw_delivered_open(tw_scheme *scheme, tw_packet_reader *readers, const void *const *packets,
                            const size_t *sizes, int count)
{
    for (int rank = 0; rank < count; rank++) {
        tw_packet_reader *reader = &readers[rank];
        TW_TRY(tw_delivered_blame(rank, tw_packet_open(reader, packets[rank], sizes[rank], scheme->carried)));
        if (reader->info.step != (uint32_t)scheme->step)
            return tw_fail(TW_ERROR_PACKET, "rank %d sent a packet of step %u in step %u", rank, reader->info.step,
                           (uint32_t)scheme->step);
        if (reader->info.nonfinite) scheme->skipped = 1;
    }
    return TW_OK;
}

tw_status tw_delivered_close(tw_packet_reader *readers, int count)
{
    for (int rank = 0; rank < count; rank++) TW_TRY(tw_delivered_blame(rank, tw_packet_close(&readers[rank])));
    return TW_OK;
}
