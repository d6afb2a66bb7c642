/* JPEG by libjpeg-turbo. It reports errors by a call that must not return: ours jumps back to where work began. */
#include "picture_format.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "error.h"

/* A progressive file may go over its pixels again and again, a few bytes each time. Encoders make about ten scans. */
enum { SCANS_MOST = 100, EXIF_BYTES = 65533 };

typedef struct reading {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    tw_status status; /* what went wrong, and the sentence */
    char text[JMSG_LENGTH_MAX];
    /* what to do, and for whom */
    const uint8_t *bytes;
    size_t size, reduction;
    picture_header *header;
    picture_buffer *pixels;
    picture *out;
} reading;

/* `client_data` of the struct that libjpeg hands out. */
static void picture_jpeg_give_up(j_common_ptr jpeg)
{
    reading *r = jpeg->client_data;
    r->status = jpeg->err->msg_code == JERR_OUT_OF_MEMORY ? TW_ERROR_MEMORY : TW_ERROR_FORMAT;
    jpeg->err->format_message(jpeg, r->text);
    longjmp(r->failed, 1);
}

/* libjpeg fills up with grey what is missing, and warns. Such a picture is not the one that was taken. */
static void hear_warning(j_common_ptr jpeg, int level)
{
    int code = jpeg->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE))
        picture_jpeg_give_up(jpeg);
}

static void watch_scans(j_common_ptr jpeg)
{
    reading *r = jpeg->client_data;
    if (r->jpeg.input_scan_number <= SCANS_MOST) return;
    r->status = TW_ERROR_FORMAT;
    snprintf(r->text, sizeof r->text, "more than %d scans", SCANS_MOST);
    longjmp(r->failed, 1);
}

static void keep_silent(j_common_ptr jpeg)
{
    (void)jpeg;
}

static void open_jpeg(reading *r)
{
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->jpeg.client_data = r;
    r->errors.error_exit = picture_jpeg_give_up;
    r->errors.emit_message = hear_warning;
    r->errors.output_message = keep_silent;
    jpeg_create_decompress(&r->jpeg);
    r->progress.progress_monitor = watch_scans;
    r->jpeg.progress = &r->progress;
    jpeg_mem_src(&r->jpeg, r->bytes, r->size);
    jpeg_save_markers(&r->jpeg, JPEG_APP0 + 1, EXIF_BYTES);
    jpeg_read_header(&r->jpeg, TRUE);
}

static int orientation_of(const struct jpeg_decompress_struct *jpeg)
{
    static const char mark[6] = "Exif\0";
    for (const struct jpeg_marker_struct *m = jpeg->marker_list; m; m = m->next)
        if (m->data_length > sizeof mark && memcmp(m->data, mark, sizeof mark) == 0)
            return exif_orientation(m->data + sizeof mark, m->data_length - sizeof mark);
    return 1;
}

static tw_status measure_with(reading *r)
{
    open_jpeg(r);
    r->header->width = r->jpeg.image_width;
    r->header->height = r->jpeg.image_height;
    r->header->orientation = orientation_of(&r->jpeg);
    return TW_OK;
}

/* Ink takes light away. Adobe's files hold how much light is left instead of how much ink there is. In place: the RGB
 * of a pixel is written where what it is made of has been read. */
static void mix_inks(uint8_t *row, size_t width, int inverted)
{
    for (size_t x = 0; x < width; x++) {
        uint8_t ink[4];
        for (size_t c = 0; c < 4; c++) ink[c] = inverted ? row[4 * x + c] : (uint8_t)(255 - row[4 * x + c]);
        for (size_t c = 0; c < 3; c++) row[3 * x + c] = (uint8_t)((ink[c] * ink[3] + 127) / 255);
    }
}

/* Rows of four colours need room for a fourth; they are made narrower once they are there. */
static tw_status read_rows(reading *r, bool inks)
{
    size_t width = r->jpeg.output_width, height = r->jpeg.output_height, row = 3 * width;
    TW_TRY(picture_check_size(width, height));
    TW_TRY(picture_reserve(r->pixels, row * height + width));
    while (r->jpeg.output_scanline < height) {
        uint8_t *at = r->pixels->bytes + row * r->jpeg.output_scanline;
        if (jpeg_read_scanlines(&r->jpeg, &at, 1) == 1 && inks) mix_inks(at, width, r->jpeg.saw_Adobe_marker);
    }
    *r->out = (picture){width, height, r->pixels->bytes};
    return TW_OK;
}

static tw_status decode_with(reading *r)
{
    open_jpeg(r);
    TW_TRY(picture_check_size(r->jpeg.image_width, r->jpeg.image_height));
    bool inks = r->jpeg.jpeg_color_space == JCS_CMYK || r->jpeg.jpeg_color_space == JCS_YCCK;
    r->jpeg.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    r->jpeg.scale_num = 1;
    r->jpeg.scale_denom = (unsigned)r->reduction;
    r->jpeg.dct_method = JDCT_ISLOW; /* exact: the same pixels whatever the processor */
    jpeg_start_decompress(&r->jpeg);
    TW_TRY(read_rows(r, inks));
    jpeg_finish_decompress(&r->jpeg);
    return TW_OK;
}

static tw_status picture_jpeg_guard(reading *r, tw_status (*work)(reading *))
{
    tw_status status;
    if (setjmp(r->failed) == 0)
        status = work(r);
    else
        status = tw_fail(r->status, r->status == TW_ERROR_MEMORY ? "no memory for a JPEG (%s)" : "a damaged JPEG (%s)",
                         r->text);
    jpeg_destroy_decompress(&r->jpeg);
    return status;
}

static tw_status picture_jpeg_measure(const uint8_t *bytes, size_t size, picture_header *header)
{
    reading r = {.bytes = bytes, .size = size, .header = header};
    return picture_jpeg_guard(&r, measure_with);
}

static tw_status picture_jpeg_decode(const uint8_t *bytes, size_t size, size_t reduction, picture_buffer *pixels,
                                     picture *out)
{
    reading r = {.bytes = bytes, .size = size, .reduction = reduction, .pixels = pixels, .out = out};
    return picture_jpeg_guard(&r, decode_with);
}

const picture_format jpeg_format = {picture_jpeg_measure, picture_jpeg_decode};
