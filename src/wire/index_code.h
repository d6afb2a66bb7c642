/* index_code.h - how the indices of a section are written. A code is one row of the table in index_code.c; unless
 * told otherwise the sender takes the one whose bits are the soonest at the receivers and read. */
#ifndef TW_WIRE_INDEX_CODE_H
#define TW_WIRE_INDEX_CODE_H

#include "packet.h"

/* What `bits` returns when a code cannot say these indices. */
#define TW_NO_CODE SIZE_MAX

/* k indices (k >= 1) of a tensor of n elements, strictly ascending, below n, throughout. */
typedef struct tw_index_code {
    /* The bits of the block, and the code's own parameter for these indices. */
    size_t (*bits)(size_t n, size_t k, const uint32_t *index, unsigned *parameter);
    /* The most bits a block of at most k of n indices takes, whatever they are. */
    size_t (*bound)(size_t n, size_t k);
    /* Writes exactly `bytes` bytes, which hold `bits`; the bits left over are zero. */
    void (*write)(unsigned char *dst, size_t bytes, size_t n, size_t k, const uint32_t *index, unsigned parameter);
    /* Reads a hostile block. NULL, or what is wrong with it. */
    const char *(*read)(const unsigned char *src, size_t bytes, size_t n, size_t k, uint32_t *index);
} tw_index_code;

/* Positions in the table are what travels: rows are appended, never moved. Number 4 was Elias-Fano's. */
enum { TW_INDEX_RICE = 0, TW_INDEX_BITMAP = 1, TW_INDEX_ALL = 2, TW_INDEX_ADAPTIVE = 3, TW_INDEX_CODES = 4 };
extern const tw_index_code *const tw_index_codes[TW_INDEX_CODES];
extern const tw_index_code tw_index_rice, tw_index_bitmap, tw_index_all, tw_index_adaptive;

/* The code for some indices: the one that pays on the coding's line, or the one that was asked for. */
typedef struct tw_index_plan {
    unsigned code, parameter;
    size_t bits;
} tw_index_plan;
tw_index_plan tw_index_choose(size_t n, size_t k, const uint32_t *index, tw_coding coding);

/* The most bytes a block of at most k of n indices takes. */
size_t tw_index_bound(size_t n, size_t k, tw_index_choice choice);

#endif
