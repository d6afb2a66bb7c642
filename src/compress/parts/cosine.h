/* cosine.h - the orthonormal discrete cosine transform (DCT-II) of small matrices, and its inverse:
 *     c = D_h x D_w^T,  x = D_h^T c D_w,   D_n[k][i] = s_k cos(pi (2i + 1) k / 2n),  s_0 = sqrt(1/n), else sqrt(2/n)
 * Every operation has its place in a fixed order, the cosines included: the same bits on every machine. */
#ifndef TW_COSINE_H
#define TW_COSINE_H

#include <stddef.h>
#include <thinwire/thinwire.h>

typedef struct tw_cosine {
    size_t longest;
    float **matrix; /* D of each length that is known, one after the other by rows; else NULL */
    float *folded, *turned;
} tw_cosine;

/* For matrices whose sides are at most `longest`, none of them known yet. */
tw_status tw_cosine_create(tw_cosine *cosine, size_t longest);
/* Makes a length known; once is enough. */
tw_status tw_cosine_know(tw_cosine *cosine, size_t length);
void tw_cosine_destroy(tw_cosine *cosine);

/* In place, of a matrix of known sides, by rows. */
void tw_cosine_forward(const tw_cosine *cosine, float *x, size_t height, size_t width);
void tw_cosine_inverse(const tw_cosine *cosine, float *c, size_t height, size_t width);

#endif
