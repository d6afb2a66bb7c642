/* PNG by libpng. It reports errors by a call that must not return: ours jumps back to where work began. */
#include "picture_format.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

#include "error.h"

typedef struct reading {
    png_structp png;
    png_infop info;
    jmp_buf failed;
    char text[128];
    /* what to read, and for whom */
    const uint8_t *bytes;
    size_t size, at;
    picture_header *header;
    picture_buffer *pixels;
    picture *out;
} reading;

static void picture_png_give_up(png_structp png, png_const_charp text)
{
    reading *r = png_get_error_ptr(png);
    snprintf(r->text, sizeof r->text, "%s", text);
    longjmp(r->failed, 1);
}

static void keep_silent(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
}

static void feed(png_structp png, png_bytep to, size_t count)
{
    reading *r = png_get_io_ptr(png);
    if (count > r->size - r->at) png_error(png, "the file ends too early");
    memcpy(to, r->bytes + r->at, count);
    r->at += count;
}

static tw_status open_png(reading *r)
{
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, picture_png_give_up, keep_silent);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    if (!r->info) return tw_fail(TW_ERROR_MEMORY, "no memory for a PNG");
    png_set_user_limits(r->png, PICTURE_PIXELS_MOST, PICTURE_PIXELS_MOST);
    png_set_read_fn(r->png, r, feed);
    png_read_info(r->png, r->info);
    return picture_check_size(png_get_image_width(r->png, r->info), png_get_image_height(r->png, r->info));
}

static int orientation_of(const reading *r)
{
#ifdef PNG_eXIf_SUPPORTED
    png_uint_32 count = 0;
    png_bytep bytes = NULL;
    if (png_get_eXIf_1(r->png, r->info, &count, &bytes)) return exif_orientation(bytes, count);
#endif
    (void)r;
    return 1;
}

static tw_status measure_with(reading *r)
{
    TW_TRY(open_png(r));
    r->header->width = png_get_image_width(r->png, r->info);
    r->header->height = png_get_image_height(r->png, r->info);
    r->header->orientation = orientation_of(r);
    return TW_OK;
}

/* Whatever is stored becomes 8-bit RGB, with a fourth value where something is transparent. */
static int read_pixels(reading *r, size_t *row)
{
    png_set_expand(r->png);
    png_set_scale_16(r->png);
    png_set_gray_to_rgb(r->png);
    int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    *row = png_get_rowbytes(r->png, r->info);
    return passes;
}

/* In place: pixels move to the front only. */
static void lay_over_white(uint8_t *pixels, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned alpha = pixels[4 * i + 3];
        for (size_t c = 0; c < 3; c++)
            pixels[3 * i + c] = (uint8_t)((pixels[4 * i + c] * alpha + 255 * (255 - alpha) + 127) / 255);
    }
}

static tw_status decode_with(reading *r)
{
    size_t row;
    TW_TRY(open_png(r));
    size_t width = png_get_image_width(r->png, r->info), height = png_get_image_height(r->png, r->info);
    int passes = read_pixels(r, &row);
    TW_TRY(picture_reserve(r->pixels, row * height));
    for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < height; y++) png_read_row(r->png, r->pixels->bytes + y * row, NULL);
    if (row == 4 * width) lay_over_white(r->pixels->bytes, width * height);
    *r->out = (picture){width, height, r->pixels->bytes};
    return TW_OK;
}

static tw_status picture_png_guard(reading *r, tw_status (*work)(reading *))
{
    tw_status status;
    if (setjmp(r->failed) == 0)
        status = work(r);
    else
        status = tw_fail(TW_ERROR_FORMAT, "a damaged PNG (%s)", r->text);
    png_destroy_read_struct(&r->png, &r->info, NULL);
    return status;
}

static tw_status picture_png_measure(const uint8_t *bytes, size_t size, picture_header *header)
{
    reading r = {.bytes = bytes, .size = size, .header = header};
    return picture_png_guard(&r, measure_with);
}

static tw_status picture_png_decode(const uint8_t *bytes, size_t size, size_t reduction, picture_buffer *pixels,
                                    picture *out)
{
    (void)reduction;
    reading r = {.bytes = bytes, .size = size, .pixels = pixels, .out = out};
    return picture_png_guard(&r, decode_with);
}

const picture_format png_format = {picture_png_measure, picture_png_decode};
