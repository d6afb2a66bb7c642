/* quantiser.h - codes of rows, learned (product quantisation with a Gumbel softmax: Jang et al. 2017, Baevski et al.
 * 2020). In each of `groups` codebooks
 *
 *     l = W f + b,  k = argmax(l + g),  q = E[k],  g Gumbel noise
 *
 * Backward, the choice counts as y = softmax((l + g) / temperature): the straight-through gradient. The target of
 * masked prediction is argmax l, without noise. */
#ifndef MODEL_QUANTISER_H
#define MODEL_QUANTISER_H

#include "affine.h"
#include "buffer.h"
#include "hiding.h"

typedef struct quantiser {
    size_t inputs, groups, codes, width; /* width: of all groups' entries side by side */
    int with_entries;                    /* 0: no vectors q are wanted, so there are no entries */
    size_t entries;                      /* E in the flat array: (groups * codes, width / groups) */
    nn_affine logits;
    nn_range parameters;
    nn_engine *engine;
    /* of the last forward, (rows, groups * codes) */
    nn_buffer probabilities, choice, logit_gradient;
    nn_buffer entry_gradients; /* of the choice: what each entry would have done */
    float temperature;         /* 0: no noise was drawn */
} quantiser;

typedef struct quantiser_options {
    size_t inputs, groups, codes, width;
    int with_entries;
    float deviation; /* of the first logits of normalised inputs */
    nn_engine *engine;
} quantiser_options;

/* Declares "quantizer.codevectors", "quantizer.weight_proj.weight" and "quantizer.weight_proj.bias". */
tw_status quantiser_declare(const quantiser_options *options, nn_table *table, quantiser *z);
void quantiser_free(quantiser *z);

typedef struct quantiser_call {
    const hiding *hidden;   /* its rows are those of `x` */
    const nn_rows *rows;    /* of the batch they were taken from */
    const uint64_t *places; /* the crops' numbers */
    const nn_noise *draws;
    float temperature;      /* 0: no noise */
    const float *x;         /* (hidden rows, inputs) */
    int32_t *chosen, *best; /* (hidden rows, groups): with noise, and without */
    float *q;               /* (hidden rows, width), or NULL */
} quantiser_call;

tw_status quantiser_forward(quantiser *z, const float *values, const quantiser_call *call);

/* For the last forward. `q_gradient` NULL: none. `diversity`: for each group and code, what a change of its mean
 * probability does to the loss, times what this worker's rows count for; added through softmax(l). All parameters'
 * gradients are written, and x_gradient (hidden rows, inputs). */
tw_status quantiser_backward(quantiser *z, const float *values, const quantiser_call *call, const float *q_gradient,
                             const float *diversity, float *gradients, float *x_gradient);

/* How unevenly codes are used: 0 if all alike, nearly 1 if there is but one: (groups codes - sum over groups of
 * exp(entropy of mean)) / (groups codes). `slope`, unless NULL, receives its gradient. (groups, codes) each. */
double quantiser_diversity(const double *mean, size_t groups, size_t codes, double *slope);

#endif
