/* picture.h - JPEG and PNG files as pixels.
 *
 * The bytes are anybody's: whatever they are, the outcome is pixels, or a status and a sentence. The sentence does not
 * name the file, which the caller knows. What a file is, its first bytes say, and not its name.
 *
 * Grey pictures, palettes and 16 bits become 8-bit RGB. What is transparent is laid over white. CMYK is converted
 * without a colour profile. A picture that its camera turned (the orientation of EXIF) is turned upright. */
#ifndef TRAINER_PICTURE_H
#define TRAINER_PICTURE_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

/* A header that promises more pixels is refused before there is memory for them. */
enum { PICTURE_PIXELS_MOST = 100000000 };

typedef struct picture_format picture_format;

/* What the beginning of a file says. */
typedef struct picture_header {
    const picture_format *format;
    size_t width, height; /* upright */
    int orientation;      /* of EXIF, 1 to 8: how the stored pixels have to be turned; 1 leaves them */
} picture_header;

/* RGB, row after row from the top; the pixels are the room's. */
typedef struct picture {
    size_t width, height;
    const uint8_t *pixels;
} picture;

typedef struct picture_buffer {
    uint8_t *bytes;
    size_t capacity;
} picture_buffer;

/* Room that serves one picture after the other; begins as zeros. */
typedef struct picture_room {
    picture_buffer pixels, turned, rows, weights;
} picture_room;

void picture_room_release(picture_room *room);
/* At least so many bytes; what was there may be lost. */
tw_status picture_reserve(picture_buffer *buffer, size_t bytes);

/* TW_ERROR_FORMAT: neither JPEG nor PNG, damaged, or too large. */
tw_status picture_measure(const uint8_t *bytes, size_t size, picture_header *header);

/* Decodes the bytes that were measured. A JPEG can come out `reduction` (1, 2, 4 or 8) times smaller, rounded up, in a
 * fraction of the time; a PNG ignores that. A file that ends too early is TW_ERROR_FORMAT: no half of it is taken. */
tw_status picture_decode(const uint8_t *bytes, size_t size, const picture_header *header, size_t reduction,
                         picture_room *room, picture *out);

/* A part of a picture, in its pixels. */
typedef struct picture_box {
    double left, top, width, height;
} picture_box;

/* Brings the part to width x height pixels: a weighted mean of those that a pixel covers, and linear interpolation
 * where there are fewer. `planes` gets (3, height, width). The arithmetic is of whole numbers: the same on every
 * machine. */
tw_status picture_resample(const picture *src, const picture_box *part, size_t width, size_t height, picture_room *room,
                           uint8_t *planes);

#endif
