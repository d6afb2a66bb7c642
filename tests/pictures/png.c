/* PNG files of every kind, whole and damaged. */
#include "support/png.h"
#include "support.h"

static png_file file;

static picture read_file(void)
{
    picture p;
    assert_ok(read_picture(file.bytes, file.size, 1, &p));
    return p;
}

TEST(rgb_is_read_as_it_is)
{
    uint8_t pixels[5 * 3 * 3];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 5);
    png_make(&file, 5, 3, pixels);
    picture p = read_file();
    assert_int_equal(p.width, 5);
    assert_int_equal(p.height, 3);
    assert_memory_equal(p.pixels, pixels, sizeof pixels);
}

/* Grey is three alike, one bit black and white, sixteen bits are scaled, a palette is looked up. */
TEST(every_kind_becomes_rgb)
{
    static const uint8_t palette[] = {1, 2, 3, 40, 50, 60};
    static const struct {
        uint8_t bits, kind, row[7], size;
        uint32_t width;
        int wanted[2][3];
    } cases[] = {
        {8, PNG_GREY, {0, 10, 200}, 3, 2, {{10, 10, 10}, {200, 200, 200}}},
        {1, PNG_GREY, {0, 0x40}, 2, 2, {{0, 0, 0}, {255, 255, 255}}},
        {16, PNG_RGB, {0, 0xff, 0xff, 0x80, 0x80, 0, 0}, 7, 1, {{255, 128, 0}}},
        {8, PNG_PALETTE, {0, 1, 0}, 3, 2, {{40, 50, 60}, {1, 2, 3}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        png_begin(&file, cases[i].width, 1, cases[i].bits, cases[i].kind, 0);
        if (cases[i].kind == PNG_PALETTE) png_chunk(&file, "PLTE", palette, sizeof palette);
        png_end(&file, cases[i].row, cases[i].size);
        picture p = read_file();
        for (size_t x = 0; x < cases[i].width; x++) {
            const int *rgb = cases[i].wanted[x];
            assert_pixel(&p, x, 0, rgb[0], rgb[1], rgb[2], 0);
        }
    }
}

/* 51 of 255 is a fifth: 0.2 * 100 + 0.8 * 255 = 224. */
TEST(what_is_transparent_lies_over_white)
{
    static const uint8_t rows[] = {0, 100, 0, 255, 51, 9, 9, 9, 0, 7, 8, 9, 255}, grey[] = {0, 100, 51};
    static const uint8_t palette[] = {1, 2, 3}, clear[] = {0}, index[] = {0, 0};
    png_begin(&file, 3, 1, 8, PNG_RGB_ALPHA, 0);
    png_end(&file, rows, sizeof rows);
    picture p = read_file();
    assert_pixel(&p, 0, 0, 224, 204, 255, 0);
    assert_pixel(&p, 1, 0, 255, 255, 255, 0);
    assert_pixel(&p, 2, 0, 7, 8, 9, 0);
    png_begin(&file, 1, 1, 8, PNG_GREY_ALPHA, 0);
    png_end(&file, grey, sizeof grey);
    p = read_file();
    assert_pixel(&p, 0, 0, 224, 224, 224, 0);
    png_begin(&file, 1, 1, 8, PNG_PALETTE, 0);
    png_chunk(&file, "PLTE", palette, sizeof palette);
    png_chunk(&file, "tRNS", clear, sizeof clear);
    png_end(&file, index, sizeof index);
    p = read_file();
    assert_pixel(&p, 0, 0, 255, 255, 255, 0);
}

/* Adam7: seven passes, each a grid. */
TEST(interlaced_is_the_same)
{
    enum { SIDE = 9 };
    static const int grids[7][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                    {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
    uint8_t rows[1024];
    size_t used = 0;
    for (int pass = 0; pass < 7; pass++) {
        for (int y = grids[pass][1]; y < SIDE; y += grids[pass][3]) {
            rows[used++] = 0;
            for (int x = grids[pass][0]; x < SIDE; x += grids[pass][2]) rows[used++] = (uint8_t)(10 * y + x);
        }
    }
    png_begin(&file, SIDE, SIDE, 8, PNG_GREY, 1);
    png_end(&file, rows, used);
    picture p = read_file();
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) assert_pixel(&p, (size_t)x, (size_t)y, 10 * y + x, 10 * y + x, 10 * y + x, 0);
}

static void make_turned(int orientation, int big)
{
    uint8_t rows[64], exif[32];
    int stored_width = orientation >= 5 ? 3 : 2, stored_height = orientation >= 5 ? 2 : 3;
    size_t used = 0;
    for (int y = 0; y < stored_height; y++) {
        rows[used++] = 0;
        for (int x = 0; x < stored_width; x++) {
            int X, Y;
            stored_place(orientation, 2, 3, x, y, &X, &Y);
            rows[used++] = (uint8_t)(100 * X);
            rows[used++] = (uint8_t)(100 * Y);
            rows[used++] = 7;
        }
    }
    png_begin(&file, (uint32_t)stored_width, (uint32_t)stored_height, 8, PNG_RGB, 0);
    png_chunk(&file, "eXIf", exif, make_orientation(exif, orientation, big));
    png_end(&file, rows, used);
}

TEST(what_a_camera_turned_is_upright)
{
    for (int orientation = 1; orientation <= 8; orientation++) {
        make_turned(orientation, orientation % 2);
        picture p = read_file();
        assert_int_equal(p.width, 2);
        assert_int_equal(p.height, 3);
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 2; x++) assert_pixel(&p, (size_t)x, (size_t)y, 100 * x, 100 * y, 7, 0);
    }
}

/* Every beginning of a file is refused, or holds all pixels: only the end mark may be missing. */
TEST(what_ends_too_early_is_refused)
{
    uint8_t pixels[3 * 64], whole[sizeof pixels];
    picture p;
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * i);
    png_make(&file, 8, 8, pixels);
    memcpy(whole, read_file().pixels, sizeof whole);
    for (size_t size = 0; size < file.size; size++) {
        uint8_t *cut = malloc(size + 1);
        memcpy(cut, file.bytes, size);
        if (read_picture(cut, size, 1, &p) == TW_OK) {
            assert_true(size + 12 + 4 >= file.size); /* IEND, and the sum of IDAT */
            assert_memory_equal(p.pixels, whole, sizeof whole);
        }
        free(cut);
    }
    assert_fails(read_picture(file.bytes, file.size / 2, 1, &p), TW_ERROR_FORMAT, "damaged PNG");
    assert_fails(read_picture(file.bytes, 0, 1, &p), TW_ERROR_FORMAT, "empty");
}

/* Each flipped byte is noticed, or in the end mark. */
TEST(damage_is_refused)
{
    picture p;
    uint8_t pixels[3 * 64] = {1, 2, 3};
    png_make(&file, 8, 8, pixels);
    for (size_t i = 0; i < file.size - 12; i++) {
        file.bytes[i] ^= 0x55;
        assert_int_equal(read_picture(file.bytes, file.size, 1, &p), TW_ERROR_FORMAT);
        file.bytes[i] ^= 0x55;
    }
}

TEST(a_bomb_is_refused_by_its_header)
{
    picture p;
    uint8_t rows[8] = {0};
    png_begin(&file, 10001, 10000, 1, PNG_GREY, 0);
    png_end(&file, rows, sizeof rows);
    assert_fails(read_picture(file.bytes, file.size, 1, &p), TW_ERROR_FORMAT, "10001 x 10000 pixels; 100 million");
    png_begin(&file, 0x7fffffff, 0x7fffffff, 16, PNG_RGB_ALPHA, 0);
    png_end(&file, rows, sizeof rows);
    assert_int_equal(read_picture(file.bytes, file.size, 1, &p), TW_ERROR_FORMAT);
}

TEST(other_files_are_neither)
{
    picture p;
    assert_fails(read_picture((const uint8_t *)"GIF89a", 6, 1, &p), TW_ERROR_FORMAT, "neither a JPEG nor a PNG");
}

RUN_TESTS(NULL, release_room)
