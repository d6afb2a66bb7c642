/* zeros.h - values of which most are zero, in fewer bytes: for each 64 of them a word that says which are anything but
 * +0, and then these. What comes out has the same bits, a -0 too. Both ends are on one machine. */
#ifndef TW_SYNC_ZEROS_H
#define TW_SYNC_ZEROS_H

#include <stddef.h>

/* Returns the bytes written; 0 when they would be more than `capacity`. */
size_t tw_zeros_pack(const float *values, size_t count, unsigned char *dst, size_t capacity);
/* 1 if `size` bytes are just what `count` values are packed into; else what is in `values` is of no use. */
int tw_zeros_unpack(const unsigned char *src, size_t size, float *values, size_t count);

#endif
