/* EXIF data are a TIFF file: a header with the byte order and the place of the first directory, which is a count and
 * entries of 12 bytes: tag, type, count, value. */
#include "picture_format.h"

#include <string.h>

enum { TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3, ENTRY = 12 };

typedef struct tiff {
    const uint8_t *bytes;
    size_t size;
    bool big_endian;
} tiff;

/* The `width` bytes at `at`, which are there, as a number. */
static uint32_t exif_number(const tiff *t, size_t at, size_t width)
{
    uint32_t value = 0;
    for (size_t i = 0; i < width; i++) value = value << 8 | t->bytes[at + (t->big_endian ? i : width - 1 - i)];
    return value;
}

static int read_entry(const tiff *t, size_t at)
{
    if (exif_number(t, at, 2) != TAG_ORIENTATION || exif_number(t, at + 2, 2) != TYPE_SHORT) return 0;
    uint32_t value = exif_number(t, at + 8, 2);
    return value >= 1 && value <= 8 ? (int)value : 1;
}

int exif_orientation(const uint8_t *bytes, size_t size)
{
    if (size < 8 || (memcmp(bytes, "II*\0", 4) != 0 && memcmp(bytes, "MM\0*", 4) != 0)) return 1;
    tiff t = {bytes, size, bytes[0] == 'M'};
    size_t directory = exif_number(&t, 4, 4);
    if (directory > size - 2) return 1;
    size_t count = exif_number(&t, directory, 2), first = directory + 2;
    for (size_t i = 0; i < count && first + (i + 1) * ENTRY <= size; i++) {
        int orientation = read_entry(&t, first + i * ENTRY);
        if (orientation) return orientation;
    }
    return 1;
}
