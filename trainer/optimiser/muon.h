/* muon.h - Muon's step for a matrix: its momentum, made nearly orthogonal. Inside this folder.
 *
 * Jordan et al. 2024 (kellerjordan.github.io/posts/muon), with the length of Liu et al. 2025 (arXiv 2502.16982): 0.2
 * times the root of the longer side, so that a step is about as long as one of AdamW and has the same rate and
 * decay. */
#ifndef TRAINER_MUON_H
#define TRAINER_MUON_H

#include <stdbool.h>
#include <thinwire/thinwire.h>

/* Whether it is one of those that Muon is for: a matrix between layers. Tables of tokens, outputs, vectors and filters
 * are AdamW's. */
bool muon_takes(const tw_tensor *tensor);

/* Room for the largest matrix of a table. */
typedef struct muon {
    float *matrix, *next, *gram, *polynomial;
} muon;

tw_status muon_create(const tw_tensor *tensors, size_t count, muon *out);
void muon_free(muon *m);

/* m->matrix, of rows x columns, becomes one with the same singular vectors, whose singular values are between about 0.7
 * and 1.2, unless they were below a thousandth of its norm: five rounds of x -> 3.4445 x - 4.775 x^3 + 2.0315 x^5. */
tw_status muon_orthogonalise(muon *m, size_t rows, size_t columns);

/* What its singular values are multiplied by. */
float muon_length(size_t rows, size_t columns);

#endif
