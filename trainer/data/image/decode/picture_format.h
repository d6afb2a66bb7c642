/* picture_format.h - what a format offers to picture.c. Private to this folder. */
#ifndef TRAINER_PICTURE_FORMAT_H
#define TRAINER_PICTURE_FORMAT_H

#include "picture.h"

#include <stdbool.h>

struct picture_format {
    /* Width, height and orientation as stored. */
    tw_status (*measure)(const uint8_t *bytes, size_t size, picture_header *header);
    /* Fills `pixels` with RGB as stored, and says how many there are. */
    tw_status (*decode)(const uint8_t *bytes, size_t size, size_t reduction, picture_buffer *pixels, picture *out);
};

extern const picture_format jpeg_format, png_format;

/* TW_ERROR_FORMAT where a picture of that size is none or too large. Before memory is asked for. */
tw_status picture_check_size(size_t width, size_t height);

/* The orientation that EXIF data (from their TIFF header on) tell, 1 to 8; 1 where they do not. */
int exif_orientation(const uint8_t *bytes, size_t size);

#endif
