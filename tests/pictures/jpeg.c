/* JPEG files of every kind, whole and damaged. */
#include "support.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

enum { WIDTH = 40, HEIGHT = 24 };

typedef struct making {
    int components; /* 1, 3 or 4 */
    J_COLOR_SPACE stored;
    bool progressive, adobe;
    int orientation; /* 0: no EXIF */
    int width, height;
} making;

static const making usual = {.components = 3, .stored = JCS_YCbCr, .width = WIDTH, .height = HEIGHT};

static unsigned char *bytes;
static unsigned long size;

/* The colour of a row's pixels: the halves and thirds of a picture differ, so that 8 x 8 blocks are flat. */
static void make_row(const making *m, int y, JSAMPLE *row, const int *(*colour)(const making *, int x, int y))
{
    for (int x = 0; x < m->width; x++)
        for (int c = 0; c < m->components; c++) row[x * m->components + c] = (JSAMPLE)colour(m, x, y)[c];
}

static void make_jpeg(const making *m, const int *(*colour)(const making *, int x, int y))
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    JSAMPLE row[4 * WIDTH * 2], *rows[1] = {row};
    free(bytes);
    bytes = NULL;
    size = 0;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &bytes, &size);
    jpeg.image_width = (JDIMENSION)m->width;
    jpeg.image_height = (JDIMENSION)m->height;
    jpeg.input_components = m->components;
    jpeg.in_color_space = m->components == 1 ? JCS_GRAYSCALE : m->components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    jpeg_set_colorspace(&jpeg, m->stored);
    jpeg_set_quality(&jpeg, 100, TRUE);
    for (int c = 0; c < jpeg.num_components; c++) jpeg.comp_info[c].h_samp_factor = jpeg.comp_info[c].v_samp_factor = 1;
    if (m->progressive) jpeg_simple_progression(&jpeg);
    jpeg.write_Adobe_marker = m->adobe;
    jpeg_start_compress(&jpeg, TRUE);
    if (m->orientation) {
        uint8_t marker[40] = "Exif\0";
        size_t length = 6 + make_orientation(marker + 6, m->orientation, m->orientation % 2);
        jpeg_write_marker(&jpeg, JPEG_APP0 + 1, marker, (unsigned)length);
    }
    while (jpeg.next_scanline < jpeg.image_height) {
        make_row(m, (int)jpeg.next_scanline, row, colour);
        jpeg_write_scanlines(&jpeg, rows, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
}

static picture read_file(size_t reduction)
{
    picture p;
    assert_ok(read_picture(bytes, size, reduction, &p));
    return p;
}

/* Blocks of 8 x 8: red follows the column, green the row. */
static const int *blocks(const making *m, int x, int y)
{
    static int values[4];
    (void)m;
    values[0] = 50 * (x / 8);
    values[1] = 80 * (y / 8);
    values[2] = 20;
    values[3] = 255; /* no black ink, where light is stored */
    return values;
}

static void assert_blocks(const picture *p, size_t block, int tolerance)
{
    for (size_t y = 0; y < p->height; y++)
        for (size_t x = 0; x < p->width; x++)
            assert_pixel(p, x, y, (int)(50 * (x / block)), (int)(80 * (y / block)), 20, tolerance);
}

TEST(colours_come_out_as_they_went_in)
{
    making progressive = usual;
    make_jpeg(&usual, blocks);
    picture p = read_file(1);
    assert_int_equal(p.width, WIDTH);
    assert_int_equal(p.height, HEIGHT);
    assert_blocks(&p, 8, 2);
    progressive.progressive = true;
    make_jpeg(&progressive, blocks);
    p = read_file(1);
    assert_blocks(&p, 8, 2);
}

TEST(it_can_come_out_smaller)
{
    make_jpeg(&usual, blocks);
    for (size_t reduction = 2; reduction <= 8; reduction *= 2) {
        picture p = read_file(reduction);
        assert_int_equal(p.width, WIDTH / reduction);
        assert_int_equal(p.height, HEIGHT / reduction);
        assert_blocks(&p, 8 / reduction, 2);
    }
}

static const int *grey(const making *m, int x, int y)
{
    static int value;
    (void)m, (void)y;
    value = 40 * (x / 8);
    return &value;
}

TEST(grey_becomes_three_alike)
{
    const making m = {.components = 1, .stored = JCS_GRAYSCALE, .width = WIDTH, .height = HEIGHT};
    make_jpeg(&m, grey);
    picture p = read_file(1);
    for (size_t x = 0; x < WIDTH; x++)
        assert_pixel(&p, x, 5, (int)(40 * (x / 8)), (int)(40 * (x / 8)), (int)(40 * (x / 8)), 2);
}

/* Half of the cyan ink, all of the magenta, no yellow, a fifth of the black: red 0.5 * 0.8, green 0, blue 0.8. */
static const int *inks(const making *m, int x, int y)
{
    static int values[4];
    static const int ink[4] = {128, 255, 0, 51};
    (void)x, (void)y;
    for (int c = 0; c < 4; c++) values[c] = m->adobe ? 255 - ink[c] : ink[c];
    return values;
}

TEST(inks_become_light)
{
    making m = {.components = 4, .stored = JCS_CMYK, .width = WIDTH, .height = HEIGHT};
    for (int i = 0; i < 3; i++) {
        m.adobe = i > 0;
        m.stored = i == 2 ? JCS_YCCK : JCS_CMYK; /* YCCK is Adobe's alone */
        make_jpeg(&m, inks);
        picture p = read_file(1);
        assert_pixel(&p, 3, 3, 102, 0, 204, 3);
        assert_pixel(&p, WIDTH - 1, HEIGHT - 1, 102, 0, 204, 3);
    }
}

/* As `blocks`, stored as the orientation says. */
static const int *turned(const making *m, int x, int y)
{
    int X, Y;
    stored_place(m->orientation, WIDTH, HEIGHT, x, y, &X, &Y);
    return blocks(m, X, Y);
}

TEST(what_a_camera_turned_is_upright)
{
    for (int orientation = 1; orientation <= 8; orientation++) {
        making m = usual;
        m.orientation = orientation;
        m.width = orientation >= 5 ? HEIGHT : WIDTH;
        m.height = orientation >= 5 ? WIDTH : HEIGHT;
        make_jpeg(&m, turned);
        picture p = read_file(1);
        assert_int_equal(p.width, WIDTH);
        assert_blocks(&p, 8, 2);
        p = read_file(4);
        assert_blocks(&p, 2, 2);
    }
}

/* Every beginning of a file is refused, but for one that lacks its end mark only. */
TEST(what_ends_too_early_is_refused)
{
    picture p;
    making m = usual;
    for (int i = 0; i < 2; i++) {
        m.progressive = i == 1;
        make_jpeg(&m, blocks);
        for (size_t cut = 0; cut < size; cut++) {
            uint8_t *part = malloc(cut + 1);
            memcpy(part, bytes, cut);
            tw_status status = read_picture(part, cut, 1, &p);
            free(part);
            if (cut + 2 >= size) continue;
            assert_int_equal(status, TW_ERROR_FORMAT);
        }
    }
    assert_fails(read_picture(bytes, size / 2, 1, &p), TW_ERROR_FORMAT, "damaged JPEG");
}

/* Where the frame's size stands: behind the marker, its length and the precision. */
static unsigned char *find_size(void)
{
    for (size_t i = 0; i + 9 < size; i++)
        if (bytes[i] == 0xff && bytes[i + 1] == 0xc0) return bytes + i + 5;
    fail_msg("no frame");
    return NULL;
}

TEST(a_bomb_is_refused_by_its_header)
{
    picture p;
    make_jpeg(&usual, blocks);
    memcpy(find_size(), (uint8_t[]){0x27, 0x10, 0x27, 0x11}, 4);
    assert_fails(read_picture(bytes, size, 8, &p), TW_ERROR_FORMAT, "10001 x 10000 pixels; 100 million");
    memset(find_size(), 0xff, 4);
    assert_fails(read_picture(bytes, size, 8, &p), TW_ERROR_FORMAT, "JPEG"); /* libjpeg's own limit */
}

/* A file whose pixels are gone over more often than any encoder does. */
TEST(endless_scans_are_refused)
{
    picture p;
    making m = usual;
    m.progressive = true;
    make_jpeg(&m, blocks);
    size_t last = size - 2; /* the last scan, from its marker to the end mark, again and again */
    while (!(bytes[last] == 0xff && bytes[last + 1] == 0xda)) last--;
    size_t scan = size - 2 - last, repeats = 200, at = size - 2;
    uint8_t *many = malloc(at + repeats * scan + 2);
    memcpy(many, bytes, at);
    for (size_t i = 0; i < repeats; i++, at += scan) memcpy(many + at, bytes + last, scan);
    memcpy(many + at, "\xff\xd9", 2);
    assert_fails(read_picture(many, at + 2, 1, &p), TW_ERROR_FORMAT, "scans");
    free(many);
}

static int release(void **state)
{
    free(bytes);
    return release_room(state);
}

RUN_TESTS(NULL, release)
