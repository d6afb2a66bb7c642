/* read_picture.h - what the fuzzers of picture formats do with a file: measure it, decode it, bring a part of it to
 * another size. Whatever is accepted must have all its pixels. */
#ifndef TW_FUZZ_READ_PICTURE_H
#define TW_FUZZ_READ_PICTURE_H

#include "fuzz.h"
#include "picture.h"

enum { FUZZ_PIXELS_MOST = 1 << 20 }; /* larger ones are measured alone, so that an input takes no time */

static volatile unsigned seen; /* so that the pixels are read, and a sanitizer sees each */

static inline void check_picture(const picture *p, picture_room *room)
{
    uint8_t planes[3 * 16 * 16];
    unsigned sum = 0;
    must(p->width > 0 && p->height > 0);
    for (size_t i = 0; i < 3 * p->width * p->height; i++) sum += p->pixels[i];
    const picture_box part = {0.25 * (double)p->width, 0.5 * (double)p->height, 0.75 * (double)p->width,
                              0.5 * (double)p->height};
    must(picture_resample(p, &part, 16, 16, room, planes) == TW_OK);
    seen = sum + planes[0];
}

static inline void read_picture(const uint8_t *data, size_t size, size_t reduction)
{
    static picture_room room;
    picture_header header;
    picture p;
    tw_status status = picture_measure(data, size, &header);
    must(status == TW_OK || status == TW_ERROR_FORMAT);
    if (status != TW_OK || header.width * header.height > FUZZ_PIXELS_MOST) return;
    must(header.orientation >= 1 && header.orientation <= 8);
    status = picture_decode(data, size, &header, reduction, &room, &p);
    must(status == TW_OK || status == TW_ERROR_FORMAT);
    if (status == TW_OK) check_picture(&p, &room);
}

#endif
