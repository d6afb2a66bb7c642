/* lora.h - adapters of low rank beside matrices that do not learn (Hu et al. 2021):
 *
 *     y = x W' + alpha / rank * dropout(x) A' B'
 *
 * with A (rank, inputs) and B (outputs, rank). A begins uniformly as in peft, B at zero, so that at first nothing
 * changes. A network has all its adapters in a table of their own, which is what learns, beside the table of its
 * matrices. An affine layer has those of its matrix, or of the matrices that stand above each other in it. */
#ifndef NN_LORA_H
#define NN_LORA_H

#include "buffer.h"
#include "dropout.h"
#include "table.h"

/* The matrices that may have one: bit i is that of name i, which stands before "_proj" in a tensor's name. */
enum { NN_LORA_TARGETS = 7 };
extern const char *const nn_lora_targets[NN_LORA_TARGETS];

typedef struct nn_lora_options {
    size_t rank; /* 0: there are no adapters */
    float alpha, keep;
    unsigned targets;
} nn_lora_options;

/* All of a network. All zero, but for the options: one without adapters yet. */
typedef struct nn_lora {
    nn_lora_options options;
    nn_table table;
    float *values, *gradients; /* the flat arrays of the table, when it is complete; others' */
    nn_noise noise;            /* of this step */
    float keep;                /* likewise; 1: no dropout */
    nn_buffer x, narrow, wide; /* room that the layers share */
} nn_lora;
void nn_lora_free(nn_lora *all);

/* A and B beside rows column .. column + outputs of a layer's matrix. */
typedef struct nn_lora_pair {
    size_t column, outputs;
    size_t a, b; /* tensors of the table */
} nn_lora_pair;

/* Those beside one layer. All zero: none. */
enum { NN_LORA_PAIRS = 3 };
typedef struct nn_lora_pairs {
    nn_lora *all;
    size_t count;
    nn_lora_pair pairs[NN_LORA_PAIRS];
} nn_lora_pairs;

/* Declares "<matrix>.lora_A.weight" and "<matrix>.lora_B.weight" where the matrix is among the targets; all: or
 * NULL. */
tw_status nn_lora_declare(nn_lora *all, const char *matrix, size_t inputs, size_t outputs, size_t column,
                          nn_lora_pairs *pairs);

/* What a layer of rows (inputs) to (outputs) does besides: forward adds to y, backward writes the gradients of A and B,
 * and adds that of x. */
typedef struct nn_lora_rows {
    size_t rows, inputs, outputs;
} nn_lora_rows;
tw_status nn_lora_forward(const nn_lora_pairs *pairs, const nn_lora_rows *size, const float *x, float *y);
tw_status nn_lora_backward_parameters(const nn_lora_pairs *pairs, const nn_lora_rows *size, const float *x,
                                      const float *y_gradient);
tw_status nn_lora_backward_source(const nn_lora_pairs *pairs, const nn_lora_rows *size, const float *y_gradient,
                                  float *x_gradient);

#endif
