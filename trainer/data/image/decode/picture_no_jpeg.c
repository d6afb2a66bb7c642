/* In place of picture_jpeg.c where there was no libjpeg. */
#include "error.h"
#include "picture_format.h"

static tw_status picture_no_jpeg_measure(const uint8_t *bytes, size_t size, picture_header *header)
{
    (void)bytes, (void)size, (void)header;
    return tw_fail(TW_ERROR_UNSUPPORTED, "a JPEG, but this thinwire was built without libjpeg");
}

const picture_format jpeg_format = {picture_no_jpeg_measure, NULL};
