/* contrast.h - telling each hidden row's own code from those of other hidden rows of its crop (InfoNCE, van den Oord et
 * al. 2018, with cosines):
 *
 *     loss[i] = -ln(e^s[i][i] / (e^s[i][i] + sum over distractors j of e^s[i][j])),  s[i][j] = cos(c[i], q[j]) /
 * similarity
 *
 * Distractors that have the row's own code are left out. A row that has none left has no loss: it is not counted as
 * solved, or a codebook that collapsed would look like success. */
#ifndef MODEL_CONTRAST_H
#define MODEL_CONTRAST_H

#include "buffer.h"
#include "hiding.h"

typedef struct contrast_options {
    size_t width, groups, distractors;
    float similarity;
} contrast_options;

/* Sums over rows; as in w2v_bert_sums. */
typedef struct contrast_result {
    double compared, loss, chance, correct, correct_chance, distractors, same, lonely;
} contrast_result;

typedef struct contrast_room {
    nn_buffer scores, unit_c, unit_q, lengths, chosen;
} contrast_room;
void contrast_room_free(contrast_room *room);

typedef struct contrast_call {
    const nn_rows *crops;   /* of hidden rows */
    const uint64_t *places; /* the crops' numbers */
    const nn_noise *draws;
    const float *c, *q;             /* (rows, width) */
    const int32_t *codes;           /* (rows, groups) */
    float weight;                   /* of the sum of losses, in the gradients */
    float *c_gradient, *q_gradient; /* written; NULL: none */
} contrast_call;

tw_status contrast(const contrast_options *options, const contrast_call *call, contrast_room *room,
                   contrast_result *result);

#endif
