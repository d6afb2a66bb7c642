#include "code_point.h"

#include <stdio.h>
#include <string.h>

/* The bits of a continuation byte go below those that are there. */
static uint32_t code_point_join(uint32_t point, unsigned char byte)
{
    return point << 6 | (byte & 0x3f);
}

size_t code_point_read(const char *bytes, size_t size, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length: smaller ones need fewer bytes */
    unsigned char head = (unsigned char)bytes[0];
    size_t length = head < 0x80 ? 1 : head < 0xc0 ? 0 : head < 0xe0 ? 2 : head < 0xf0 ? 3 : head < 0xf8 ? 4 : 0;
    if (length == 0 || length > size) return 0;
    uint32_t value = length == 1 ? head : head & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (((unsigned char)bytes[i] & 0xc0) != 0x80) return 0;
        value = code_point_join(value, (unsigned char)bytes[i]);
    }
    if (value < least[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return 0;
    *point = value;
    return length;
}

size_t code_point_write(uint32_t point, char bytes[CODE_POINT_BYTES])
{
    size_t length = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, point >>= 6) bytes[i] = (char)(0x80 | (point & 0x3f));
    bytes[0] = (char)(length == 1 ? point : (0xf00u >> length & 0xff) | point);
    return length;
}

bool code_point_valid(const char *bytes, size_t size)
{
    uint32_t point;
    for (size_t length; size > 0; bytes += length, size -= length) {
        length = code_point_read(bytes, size, &point);
        if (length == 0) return false;
    }
    return true;
}

static bool is_control(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0);
}

enum { SHOWN = CODE_POINT_BYTES + 1 }; /* "\xNN" is as long */

/* Returns how many bytes of `src` it shows. */
static size_t show_one(const char *src, size_t size, char shown[SHOWN])
{
    uint32_t point;
    size_t length = code_point_read(src, size, &point);
    if (length > 0 && !is_control(point)) {
        memcpy(shown, src, length);
        shown[length] = 0;
        return length;
    }
    snprintf(shown, SHOWN, "\\x%02x", (unsigned)(unsigned char)*src);
    return 1;
}

char *code_point_show(const char *src, size_t size, char *dst, size_t capacity)
{
    char *at = dst, *end = dst + capacity - 1;
    for (size_t read; size > 0; src += read, size -= read) {
        char shown[SHOWN];
        read = show_one(src, size, shown);
        size_t length = strlen(shown);
        if (length > (size_t)(end - at)) break;
        memcpy(at, shown, length);
        at += length;
    }
    *at = 0;
    return dst;
}
