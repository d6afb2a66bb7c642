/* code_point.h - characters of UTF-8. */
#ifndef TRAINER_DATA_CODE_POINT_H
#define TRAINER_DATA_CODE_POINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODE_POINT_BYTES = 4 };

/* Reads one character of bytes[0 .. size), size > 0. Returns how many bytes it takes; 0 when they are not UTF-8: cut
 * off, longer than need be, a surrogate, beyond U+10FFFF. */
size_t code_point_read(const char *bytes, size_t size, uint32_t *point);
/* Returns how many bytes were written. */
size_t code_point_write(uint32_t point, char bytes[CODE_POINT_BYTES]);

/* Whether all of these bytes are characters. */
bool code_point_valid(const char *bytes, size_t size);

/* Copies `size` bytes of unknown origin for a line to a person: bytes that are not UTF-8, and control characters,
 * become \xNN, and what does not fit into `capacity` bytes is left out. Returns dst. */
char *code_point_show(const char *src, size_t size, char *dst, size_t capacity);

#endif
