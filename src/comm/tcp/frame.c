#include "frame.h"

#include "bytes.h"

#include <thinwire/thinwire_plugin.h>

/* Where what lies. */
enum { CRC = 0, KIND = 4, CHANNEL = 8, CHECK = 12, SEQ = 16, SIZE = 24, OFFSET = 32, LENGTH = 40, UNUSED = 44 };

void tcp_frame_write(const tcp_frame *frame, unsigned char bytes[TCP_FRAME_BYTES])
{
    tw_put(bytes + KIND, frame->kind, 4);
    tw_put(bytes + CHANNEL, frame->channel, 4);
    tw_put(bytes + CHECK, frame->check, 4);
    tw_put(bytes + SEQ, frame->seq, 8);
    tw_put(bytes + SIZE, frame->size, 8);
    tw_put(bytes + OFFSET, frame->offset, 8);
    tw_put(bytes + LENGTH, frame->length, 4);
    tw_put(bytes + UNUSED, 0, 4);
    tw_put(bytes + CRC, tw_crc32c(0, bytes + KIND, TCP_FRAME_BYTES - KIND), 4);
}

/* A piece lies within its message; only a message of nothing has a piece of nothing. */
static int has_possible_piece(const tcp_frame *frame)
{
    if (frame->length > TCP_SEGMENT || frame->size > SIZE_MAX / 2) return 0;
    if (frame->offset > frame->size || frame->length > frame->size - frame->offset) return 0;
    return frame->length > 0 || frame->size == 0;
}

int tcp_frame_read(const unsigned char bytes[TCP_FRAME_BYTES], tcp_frame *frame)
{
    uint64_t kind = tw_get(bytes + KIND, 4);
    *frame = (tcp_frame){.kind = (tcp_frame_kind)kind,
                         .channel = (uint32_t)tw_get(bytes + CHANNEL, 4),
                         .check = (uint32_t)tw_get(bytes + CHECK, 4),
                         .length = (uint32_t)tw_get(bytes + LENGTH, 4),
                         .seq = tw_get(bytes + SEQ, 8),
                         .size = tw_get(bytes + SIZE, 8),
                         .offset = tw_get(bytes + OFFSET, 8)};
    if (tw_get(bytes + CRC, 4) != tw_crc32c(0, bytes + KIND, TCP_FRAME_BYTES - KIND)) return 0;
    if (kind < TCP_DATA || kind >= TCP_KINDS || tw_get(bytes + UNUSED, 4)) return 0;
    if (kind == TCP_DATA || kind == TCP_GRANTED) return has_possible_piece(frame);
    return frame->length == 0 && frame->offset == 0;
}
