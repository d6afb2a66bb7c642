/* Room for pictures, and which are too large for it. */
#include <stdlib.h>

#include "error.h"
#include "picture_format.h"

tw_status picture_reserve(picture_buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->capacity) return TW_OK;
    uint8_t *fresh = malloc(bytes);
    if (!fresh) return tw_fail(TW_ERROR_MEMORY, "no memory for the %zu KiB of a picture", bytes >> 10);
    free(buffer->bytes);
    buffer->bytes = fresh;
    buffer->capacity = bytes;
    return TW_OK;
}

void picture_room_release(picture_room *room)
{
    free(room->pixels.bytes);
    free(room->turned.bytes);
    free(room->rows.bytes);
    free(room->weights.bytes);
    *room = (picture_room){0};
}

tw_status picture_check_size(size_t width, size_t height)
{
    if (width == 0 || height == 0) return tw_fail(TW_ERROR_FORMAT, "a picture without pixels");
    if (height <= PICTURE_PIXELS_MOST / width) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "its header says %zu x %zu pixels; %d million are the most that are read", width,
                   height, PICTURE_PIXELS_MOST / 1000000);
}
