/* chunks.h - the largest of each chunk, and what follows from it (ScaleCom, AdaComp). A part of the table in kernels.h;
 * its rules hold. */
#ifndef TW_KERNELS_CHUNKS_H
#define TW_KERNELS_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

typedef struct tw_chunks_rows {
    int none;
} tw_chunks_rows;

/* The reference. */
extern const tw_chunks_rows tw_chunks_scalar;

#endif
