/* decoder_block.h - a block of a decoder in Llama's shape (Touvron et al. 2023):
 *
 *     a = x + attend(norm(x)),  y = a + feed(norm'(a)),  feed(z) = down(swish(gate z) * up z)
 *
 * Norms are root mean square norms, positions are rotary, and attention is causal and may be grouped. A block of Qwen2
 * (Yang et al. 2024) has biases of q, k and v besides. One of Qwen3 (Yang et al. 2025) has a norm of each head of q,
 * and of k, before it turns. Each branch ends with dropout, which none of the three has. Tensors are named as in
 * Hugging Face's LlamaForCausalLM and its kin, "input_layernorm.weight" and on; those of q, k and v stand side by side,
 * and so do gate and up, so that one product does all of them. */
#ifndef MODEL_DECODER_BLOCK_H
#define MODEL_DECODER_BLOCK_H

#include "activation.h"
#include "affine.h"
#include "dropout.h"
#include "grouped_attention.h"
#include "rms_norm.h"
#include "rotary.h"

enum { DECODER_DROPOUTS = 2 };

typedef enum decoder_family { DECODER_LLAMA, DECODER_QWEN2, DECODER_QWEN3, DECODER_FAMILIES } decoder_family;

typedef struct decoder_options {
    const char *name; /* what stands before the tensors' names */
    decoder_family family;
    size_t width;
    size_t heads, kv_heads; /* the second divides the first */
    size_t head;            /* width of one, even */
    size_t inner;           /* width of the feed-forward part */
    float epsilon;          /* of the norms */
    float range, out_range; /* weights begin uniformly between -range and range; those that end a branch, out_range */
    nn_engine *engine;      /* lives as long as the block; so does */
    nn_lora *lora;          /* which gets the block's adapters; NULL: there are none */
} decoder_options;

typedef struct decoder_block {
    decoder_family family;
    size_t width, inner;
    nn_range parameters;
    nn_rms_norm norms[2];
    nn_rms_norm head_norms[2]; /* of q and k, in Qwen3 */
    nn_affine joint, out;      /* q, k and v at once; what leaves attention */
    nn_affine gates, down;
    nn_grouped_attention attention;
    nn_buffer normed[2], scales[2]; /* of each norm: what it gave, and what it needs for backward */
    nn_buffer qkv, attended;        /* queries and keys are turned already */
    nn_buffer plain, head_scales;   /* in Qwen3: qkv as the product gave it; and as `scales`, q's and then k's */
    nn_buffer sum;                  /* a */
    nn_buffer wide, active;         /* gate and up; what down reads */
    nn_buffer y;
} decoder_block;

/* Declares the tensors in `table`. */
tw_status decoder_declare(const decoder_options *options, nn_table *table, decoder_block *block);
void decoder_free(decoder_block *block);

/* What a call computes on: rows in the order (steps, batch). */
typedef struct decoder_pass {
    const float *values;
    size_t steps, batch;
    const nn_rotary *rotary; /* knows the positions */
    size_t first;            /* position of step 0 */
    const nn_noise *noise;
    size_t place; /* of the first dropout */
    float keep;   /* 1: no dropout */
} decoder_pass;

/* block->y.values is the output; x stays until backward. `heard`, unless NULL, is what the block remembers of the steps
 * before, of a batch of one; then nothing can go backward. */
tw_status decoder_forward(decoder_block *block, const decoder_pass *pass, nn_heard *heard, const float *x);

/* Room for backward, which blocks share. */
typedef struct decoder_room {
    nn_buffer narrow, wide, branch;
} decoder_room;
void decoder_room_free(decoder_room *room);

/* For the last forward, with its pass and x. `gradient`, of y, becomes that of x. The parameters' are written, unless
 * `gradients` is NULL. */
tw_status decoder_backward(decoder_block *block, const decoder_pass *pass, const float *x, float *gradient,
                           float *gradients, decoder_room *room);

#endif
