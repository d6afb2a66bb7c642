/* transformer.h - decoder blocks one above the other and a last norm: the inside of a language model in Llama's shape.
 * Tensors are named as in Hugging Face's LlamaForCausalLM: model.layers.N.*, model.norm.weight. */
#ifndef MODEL_TRANSFORMER_H
#define MODEL_TRANSFORMER_H

#include "decoder_block.h"

typedef struct transformer transformer;

typedef struct transformer_options {
    decoder_family family;
    size_t layers, width;
    size_t heads, kv_heads, head, inner; /* as in decoder_options */
    double theta;                        /* base of the rotary positions */
    nn_rotary_scaling scaling;           /* likewise */
    float epsilon;
    float range; /* likewise; weights that end a branch have range / sqrt(2 layers) (GPT-2) */
    nn_engine *engine;
    nn_lora *lora; /* as in decoder_options */
} transformer_options;

/* Declares the tensors in `table`, which lives as long. */
tw_status transformer_create(const transformer_options *options, nn_table *table, transformer **stack);
void transformer_destroy(transformer *stack);

/* From here on `room` steps of one sequence are remembered, and every forward reads on. None has been read. What was
 * remembered before is forgotten. 0: nothing is remembered, and every forward is a text by itself. */
tw_status transformer_remember(transformer *stack, size_t room);

/* Of what the blocks and the norm are, in order, those from `first` to before `end` alone: a part of a network that is
 * cut. Where it is none of them, what comes in goes out. */
void transformer_hold(transformer *stack, size_t first, size_t end);

typedef struct transformer_batch {
    size_t steps, batch; /* while something is remembered: a batch of 1, and steps that there is room for */
    const float *x;      /* (steps, batch, width); stays until backward */
    float keep;          /* probability; 1: no dropout */
    nn_noise noise;      /* layer i drops at places 2 i + 1 and 2 i + 2 */
} transformer_batch;

/* *y: (steps, batch, width), the stack's, until its next forward. */
tw_status transformer_forward(transformer *stack, const float *values, const transformer_batch *batch, const float **y);

typedef struct transformer_gradients {
    const float *y;    /* as y */
    float *x;          /* as x, and may be the batch's; not y's */
    float *parameters; /* the table's flat array; NULL: they do not learn */
    nn_gradient_ready ready;
    void *context;
} transformer_gradients;

/* For the last forward, whose batch is still valid. */
tw_status transformer_backward(transformer *stack, const float *values, const transformer_gradients *gradients);

#endif
