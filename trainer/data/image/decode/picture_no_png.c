/* In place of picture_png.c where there was no libpng. */
#include "error.h"
#include "picture_format.h"

static tw_status picture_no_png_measure(const uint8_t *bytes, size_t size, picture_header *header)
{
    (void)bytes, (void)size, (void)header;
    return tw_fail(TW_ERROR_UNSUPPORTED, "a PNG, but this thinwire was built without libpng");
}

const picture_format png_format = {picture_no_png_measure, NULL};
