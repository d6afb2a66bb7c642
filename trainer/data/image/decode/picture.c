#include "picture.h"

#include <string.h>

#include "error.h"
#include "picture_format.h"

/* What the first bytes of a file are. */
static const struct {
    const char *bytes;
    size_t count;
    const picture_format *format;
} marks[] = {{"\xff\xd8\xff", 3, &jpeg_format}, {"\x89PNG\r\n\x1a\n", 8, &png_format}};

/* ---- formats ---- */

static tw_status find_format(const uint8_t *bytes, size_t size, const picture_format **format)
{
    if (size == 0) return tw_fail(TW_ERROR_FORMAT, "empty");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        *format = marks[i].format;
        if (size >= marks[i].count && memcmp(bytes, marks[i].bytes, marks[i].count) == 0) return TW_OK;
    }
    return tw_fail(TW_ERROR_FORMAT, "neither a JPEG nor a PNG");
}

/* From 5 on, rows are columns. */
static bool lies(int orientation)
{
    return orientation >= 5;
}

tw_status picture_measure(const uint8_t *bytes, size_t size, picture_header *header)
{
    const picture_format *format;
    TW_TRY(find_format(bytes, size, &format));
    picture_header stored = {.format = format, .orientation = 1};
    TW_TRY(format->measure(bytes, size, &stored));
    TW_TRY(picture_check_size(stored.width, stored.height));
    *header = stored;
    if (lies(stored.orientation)) {
        header->width = stored.height;
        header->height = stored.width;
    }
    return TW_OK;
}

/* ---- turning ---- */

/* Where the pixel of an upright picture at (x, y) is stored. */
static size_t stored_at(const picture *stored, int orientation, size_t x, size_t y)
{
    size_t right = stored->width - 1, bottom = stored->height - 1;
    size_t across = lies(orientation) ? y : x, down = lies(orientation) ? x : y;
    bool mirrored = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    bool flipped = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    return (flipped ? bottom - down : down) * stored->width + (mirrored ? right - across : across);
}

static tw_status picture_turn(int orientation, picture_buffer *room, picture *p)
{
    picture stored = *p;
    TW_TRY(picture_reserve(room, 3 * stored.width * stored.height));
    if (lies(orientation)) {
        p->width = stored.height;
        p->height = stored.width;
    }
    uint8_t *to = room->bytes;
    for (size_t y = 0; y < p->height; y++)
        for (size_t x = 0; x < p->width; x++, to += 3)
            memcpy(to, stored.pixels + 3 * stored_at(&stored, orientation, x, y), 3);
    p->pixels = room->bytes;
    return TW_OK;
}

tw_status picture_decode(const uint8_t *bytes, size_t size, const picture_header *header, size_t reduction,
                         picture_room *room, picture *out)
{
    TW_TRY(header->format->decode(bytes, size, reduction, &room->pixels, out));
    return header->orientation == 1 ? TW_OK : picture_turn(header->orientation, &room->turned, out);
}
