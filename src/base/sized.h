/* sized.h - answers in structs that may grow. Their first member is a size_t struct_size, which the caller sets to the
 * size it was compiled with. */
#ifndef TW_BASE_SIZED_H
#define TW_BASE_SIZED_H

#include <thinwire/thinwire.h>

/* Copies an answer of `size` bytes into the caller's struct: as many fields as both know; the caller's others become
 * zero, its struct_size stays. TW_ERROR_ARGUMENT, naming the type, if struct_size was not set: it is 0, or too small
 * for itself, or no size that a struct has. */
tw_status tw_copy_sized(void *dst, const void *src, size_t size, const char *type);

#endif
