/* The reference of chunks.h. */
#include "chunks.h"

const tw_chunks_rows tw_chunks_scalar = {0};
