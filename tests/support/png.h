/* png.h - PNG files made by hand, of zlib alone: not by the library that reads them. */
#ifndef TESTS_SUPPORT_PNG_H
#define TESTS_SUPPORT_PNG_H

#include "support/folder.h"

#include <stdint.h>
#include <zlib.h>

enum { PNG_GREY = 0, PNG_RGB = 2, PNG_PALETTE = 3, PNG_GREY_ALPHA = 4, PNG_RGB_ALPHA = 6, PNG_MOST = 1 << 16 };

typedef struct png_file {
    uint8_t bytes[PNG_MOST];
    size_t size;
} png_file;

static inline void png_number(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static inline void png_chunk(png_file *file, const char *name, const void *data, size_t size)
{
    uint8_t *at = file->bytes + file->size;
    assert_true(file->size + size + 12 <= sizeof file->bytes);
    png_number(at, (uint32_t)size);
    memcpy(at + 4, name, 4);
    if (size > 0) memcpy(at + 8, data, size);
    png_number(at + 8 + size, (uint32_t)crc32(0, at + 4, (unsigned)size + 4));
    file->size += size + 12;
}

static inline void png_begin(png_file *file, uint32_t width, uint32_t height, int depth, int colour, int interlaced)
{
    uint8_t header[13] = {0};
    memcpy(file->bytes, "\x89PNG\r\n\x1a\n", 8);
    file->size = 8;
    png_number(header, width);
    png_number(header + 4, height);
    header[8] = (uint8_t)depth;
    header[9] = (uint8_t)colour;
    header[12] = (uint8_t)interlaced;
    png_chunk(file, "IHDR", header, sizeof header);
}

/* `rows`: for each row a filter byte, 0, and the row. */
static inline void png_end(png_file *file, const void *rows, size_t size)
{
    static uint8_t packed[PNG_MOST];
    uLongf length = sizeof packed;
    assert_int_equal(compress2(packed, &length, rows, size, 9), Z_OK);
    png_chunk(file, "IDAT", packed, length);
    png_chunk(file, "IEND", NULL, 0);
}

/* An RGB picture of 8 bits. */
static inline void png_make(png_file *file, size_t width, size_t height, const uint8_t *pixels)
{
    static uint8_t rows[PNG_MOST];
    assert_true(height * (3 * width + 1) <= sizeof rows);
    for (size_t y = 0; y < height; y++) {
        rows[y * (3 * width + 1)] = 0;
        memcpy(rows + y * (3 * width + 1) + 1, pixels + y * 3 * width, 3 * width);
    }
    png_begin(file, (uint32_t)width, (uint32_t)height, 8, PNG_RGB, 0);
    png_end(file, rows, height * (3 * width + 1));
}

/* One whose pixels are all different from their neighbours and follow from `seed`. */
static inline void write_png(const char *name, size_t width, size_t height, unsigned seed)
{
    static png_file file;
    static uint8_t pixels[PNG_MOST];
    assert_true(3 * width * height <= sizeof pixels);
    for (size_t i = 0; i < 3 * width * height; i++) pixels[i] = (uint8_t)(seed * 31 + i * 7 + i / (3 * width) * 13);
    png_make(&file, width, height, pixels);
    write_bytes(name, file.bytes, file.size);
}

#endif
