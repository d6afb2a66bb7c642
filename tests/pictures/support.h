/* support.h - a picture from bytes, and what it should be. */
#ifndef TESTS_PICTURES_SUPPORT_H
#define TESTS_PICTURES_SUPPORT_H

#include "picture.h"
#include "support/assert.h"

#include <stdlib.h>

static picture_room room;

static inline tw_status read_picture(const uint8_t *bytes, size_t size, size_t reduction, picture *p)
{
    picture_header header;
    tw_status status = picture_measure(bytes, size, &header);
    if (status != TW_OK) return status;
    status = picture_decode(bytes, size, &header, reduction, &room, p);
    if (status == TW_OK && reduction == 1) {
        assert_int_equal(p->width, header.width);
        assert_int_equal(p->height, header.height);
    }
    return status;
}

static inline void assert_pixel(const picture *p, size_t x, size_t y, int red, int green, int blue, int tolerance)
{
    const uint8_t *at = p->pixels + 3 * (y * p->width + x);
    int wanted[3] = {red, green, blue};
    for (int c = 0; c < 3; c++)
        if (abs(at[c] - wanted[c]) > tolerance)
            fail_msg("pixel (%zu, %zu) is %d %d %d, not %d %d %d", x, y, at[0], at[1], at[2], red, green, blue);
}

static inline int release_room(void **state)
{
    picture_room_release(&room);
    return 0;
}

/* TIFF data with one entry, the orientation; of either byte order. */
static inline size_t make_orientation(uint8_t *to, int orientation, int big)
{
    static const uint8_t little_data[26] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0};
    static const uint8_t big_data[26] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1};
    memcpy(to, big ? big_data : little_data, 26);
    to[big ? 19 : 18] = (uint8_t)orientation;
    return 26;
}

/* A picture of 2 x 3 (wide, high) whose pixels say where they belong: red for the column, green for the row. The eight
 * ways to store it, as EXIF counts them: which stored pixel (x, y) is the upright one (X, Y). */
static inline void stored_place(int orientation, int width, int height, int x, int y, int *X, int *Y)
{
    const int places[9][2] = {{0, 0},
                              {x, y},
                              {width - 1 - x, y},
                              {width - 1 - x, height - 1 - y},
                              {x, height - 1 - y},
                              {y, x},
                              {width - 1 - y, x},
                              {width - 1 - y, height - 1 - x},
                              {y, height - 1 - x}};
    *X = places[orientation][0];
    *Y = places[orientation][1];
}

#endif
