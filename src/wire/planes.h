/* planes.h - whole numbers and floating-point ones without loss. The exponents of weights are much alike, and so are
 * the upper bytes of counts: the bytes of one place, which are a plane, often say far less than eight bits each. */
#ifndef TW_WIRE_PLANES_H
#define TW_WIRE_PLANES_H

#include <stddef.h>

enum {
    TW_PLANES_MOST = 8 /* bytes of a number */,
    TW_PLANES_BLOCK = 1 << 20 /* bytes of a block's numbers, at the most */
};

/* The most bytes that a block of `count` numbers of `width` bytes takes: one more than they are. */
size_t tw_planes_bound(size_t count, size_t width);

/* Writes a block and returns its bytes. */
size_t tw_planes_write(unsigned char *dst, const void *numbers, size_t count, size_t width);

/* Reads a block of as many. NULL, or what is wrong with it; `numbers` may then hold anything. */
const char *tw_planes_read(const unsigned char *src, size_t bytes, void *numbers, size_t count, size_t width);

#endif
