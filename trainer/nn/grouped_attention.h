/* grouped_attention.h - causal attention, in which several heads share keys and values (Ainslie et al. 2023):
 *
 *     score[i][j] = q[i] k[j] / sqrt(width of a head) for j <= i,  y[i] = sum over j of softmax(score[i])[j] v[j]
 *
 * Query heads h * heads / kv_heads and on, as many as divide among the key heads, look at key head h. Rows come in the
 * order (steps, batch). A row of `qkv` has the queries of all heads, then the keys, then the values: one product makes
 * all three. */
#ifndef NN_GROUPED_ATTENTION_H
#define NN_GROUPED_ATTENTION_H

#include "buffer.h"

typedef struct nn_grouped_attention {
    size_t heads, kv_heads;  /* the second divides the first */
    size_t width;            /* of a head */
    nn_buffer probabilities; /* (batch, heads, steps, steps), from forward to backward */
    nn_buffer scratch;
} nn_grouped_attention;

void nn_grouped_attention_free(nn_grouped_attention *layer);
/* Values of a row of qkv. */
size_t nn_grouped_attention_row(const nn_grouped_attention *layer);

/* y (steps, batch, heads * width). */
tw_status nn_grouped_attention_forward(nn_grouped_attention *layer, size_t steps, size_t batch, const float *qkv,
                                       float *y);
/* For the last forward. qkv_gradient, as qkv, is written. */
tw_status nn_grouped_attention_backward(nn_grouped_attention *layer, size_t steps, size_t batch, const float *qkv,
                                        const float *y_gradient, float *qkv_gradient);

/* Keys and values of what one sequence has read, (count, 2 * kv_heads * width). */
typedef struct nn_heard {
    float *rows;
    size_t count;
} nn_heard;

/* The steps that follow those in `heard`, which has room for them and remembers them. The last forward is gone. */
tw_status nn_grouped_attention_read(nn_grouped_attention *layer, size_t steps, const float *qkv, nn_heard *heard,
                                    float *y);

#endif
