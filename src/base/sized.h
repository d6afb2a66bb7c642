/* sized.h - structs that may grow. Their first member is a size_t struct_size, which the caller sets to the size it was
 * compiled with. */
#ifndef TW_BASE_SIZED_H
#define TW_BASE_SIZED_H

#include <thinwire/thinwire.h>

/* Copies an answer of `size` bytes into the caller's struct: as many fields as both know; the caller's others become
 * zero, its struct_size stays. TW_ERROR_ARGUMENT, naming the type, if struct_size was not set: it is 0, or too small
 * for itself, or no size that a struct has. */
tw_status tw_copy_sized(void *dst, const void *src, size_t size, const char *type);

/* The other way: what the caller says, in the struct of `size` bytes that this library knows. TW_ERROR_ARGUMENT as
 * above; else as tw_read_known. */
tw_status tw_read_sized(void *dst, size_t size, const void *src, const char *type);

/* TW_ERROR_ARGUMENT if the two pointers reserved in a struct without a struct_size are not NULL. */
tw_status tw_check_reserved(const void *const reserved[2], const char *type);

/* Reads a caller's struct, of `size` bytes, into one of `known`: what the caller's has not is zero. TW_ERROR_ARGUMENT
 * for what is no size of it; TW_ERROR_UNSUPPORTED if it has more than is known here, and uses it: it is not zero. */
tw_status tw_read_known(void *dst, size_t known, const void *src, size_t size, const char *type);

#endif
