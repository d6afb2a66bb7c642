/* siphash.h - a keyed hash: who does not know the key cannot choose inputs that collide. */
#ifndef TW_BASE_SIPHASH_H
#define TW_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012) of `size` bytes. */
uint64_t tw_siphash(const uint64_t key[2], const void *data, size_t size);

#endif
