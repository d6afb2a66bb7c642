/* smaller.h - of two sizes the smaller one. */
#ifndef TW_BASE_SMALLER_H
#define TW_BASE_SMALLER_H

#include <stddef.h>

static inline size_t tw_smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

#endif
