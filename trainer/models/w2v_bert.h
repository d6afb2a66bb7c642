/* w2v_bert.h - self-supervised pre-training of a speech encoder (Chung et al., w2v-BERT, 2021).
 *
 * Spans of rows are hidden from the encoder. Of what was hidden, a quantiser makes codes; the first blocks learn to
 * tell a row's own code from those of other hidden rows (contrastive), the blocks above to name it (masked prediction):
 *
 *     loss = contrastive + diversity_weight * diversity + masked
 *
 * each a mean over the hidden rows of ALL workers. With `sum` below N workers are one worker with a batch N times as
 * large. What is drawn (masks, noise, distractors) depends on seed, step and the crop's number, not on the worker.
 *
 * Targets are either codes that are learned with Gumbel noise and a straight-through gradient, or, with no contrastive
 * blocks, those of a frozen random projection and codebook over the frames themselves (BEST-RQ, Chiu et al. 2022).
 *
 * Tensors: the encoder's; "masked_spec_embed.weight" (learned fill only); "masked_prediction.*"; "project_hid.*",
 * "project_q.*", "quantizer.codevectors", "quantizer.weight_proj.*". A model belongs to one thread. */
#ifndef TRAINER_W2V_BERT_H
#define TRAINER_W2V_BERT_H

#include "parameters.h"
#include "precision.h"
#include "speech_encoder.h"

typedef struct w2v_bert w2v_bert;

typedef enum w2v_bert_targets { W2V_BERT_GUMBEL, W2V_BERT_RANDOM } w2v_bert_targets;
typedef enum w2v_bert_fill { W2V_BERT_FILL_RANDOM, W2V_BERT_FILL_LEARNED } w2v_bert_fill;

typedef struct w2v_bert_config {
    speech_encoder_config encoder; /* its `blocks` is ignored: it has contrastive_blocks + masked_blocks */
    size_t contrastive_blocks;     /* 0: no contrastive loss */
    size_t masked_blocks;          /* 0: no masked prediction */
    size_t groups, codes;          /* codebooks, and entries of each */
    size_t code_width;             /* of all groups' entries side by side; a multiple of `groups` */
    size_t compared_width;         /* in which rows and codes are compared */
    float code_scale; /* the deviation of the first logits of normalised features: weights begin with code_scale /
                       * sqrt(inputs) */
    w2v_bert_targets targets;
    double mask_probability; /* that a span begins at a row */
    size_t mask_span;        /* rows */
    w2v_bert_fill fill;
    size_t distractors;     /* of each hidden row; fewer where its crop has fewer others */
    float diversity_weight; /* 1; with the paper's 0.1 codes died */
    float similarity;       /* what cosines are divided by: 0.1 */
    nn_precision precision;
} w2v_bert_config;

/* The sizes of --size: "tiny", "xl", "xxl"; all else is left as it is. NULL where there is no such size. */
typedef struct w2v_bert_size {
    const char *name;
    size_t channels, width, heads, kernel, contrastive_blocks, masked_blocks, groups, codes, code_width, compared_width;
} w2v_bert_size;
const w2v_bert_size *w2v_bert_find_size(const char *name);
void w2v_bert_take_size(const w2v_bert_size *size, w2v_bert_config *config);

/* TW_ERROR_ARGUMENT says which size cannot be, in words of the options. */
tw_status w2v_bert_check(const w2v_bert_config *config);
tw_status w2v_bert_create(const w2v_bert_config *config, w2v_bert **model);
/* Declares the tensors only, in an empty table, which nn_table_free releases: what --describe shows. */
tw_status w2v_bert_describe(const w2v_bert_config *config, nn_table *table);
void w2v_bert_destroy(w2v_bert *m);

const parameter_set *w2v_bert_parameters(const w2v_bert *m);
/* What does not learn but must be kept: random targets' projection and codebook; empty for others. No gradients. */
const parameter_set *w2v_bert_buffers(const w2v_bert *m);
/* Draws both: the same on every worker. */
tw_status w2v_bert_initialise(w2v_bert *m, uint64_t seed);
/* Has a pager bring in layers before they are used, from before their first values on: see nn_table_page. */
tw_status w2v_bert_page(w2v_bert *m, pager *by);

typedef struct w2v_bert_batch {
    nn_rows crops;         /* in frames */
    const float *frames;   /* (frames, features) */
    const uint64_t *place; /* (crops): which of the step's crops, over all workers, it is; below 2^20 */
} w2v_bert_batch;

/* Replaces `values` by their sums over all workers, the same bits on each. */
typedef struct w2v_bert_sum {
    tw_status (*sum)(void *context, float *values, size_t count);
    void *context;
    size_t workers;
} w2v_bert_sum;

typedef struct w2v_bert_step_options {
    nn_noise draws;          /* of masks, Gumbel noise, distractors: the same on all workers; step below 2^36 */
    nn_noise dropout;        /* differs from worker to worker */
    float temperature;       /* of the Gumbel softmax */
    const w2v_bert_sum *sum; /* NULL: statistics are this worker's own */
    nn_gradient_ready ready; /* or NULL */
    void *context;
} w2v_bert_step_options;

/* Sums, of a call or of many: those of several batches or workers may be added, field by field. */
typedef struct w2v_bert_sums {
    double hidden;              /* rows of the batch that were hidden */
    double compared;            /* hidden rows that had a distractor of another code */
    double contrastive;         /* their losses */
    double contrastive_chance;  /* of ln(1 + distractors of another code) */
    double contrastive_correct; /* those whose own code is the nearest */
    double correct_chance;      /* of 1 / (1 + distractors of another code) */
    double distractors, same;   /* all that were drawn; of them, those of the row's own code, left out */
    double masked;              /* losses of prediction, over the hidden rows */
    double masked_correct;      /* predictions, of groups * hidden */
    double row_entropy;         /* of p = softmax(logits) of each hidden row and group */
    double sampled_best;        /* draws that fell upon the largest logit, of groups * hidden */
    double lonely_crops;        /* crops with fewer than two hidden rows: nothing to compare */
} w2v_bert_sums;

typedef struct w2v_bert_result {
    w2v_bert_sums sums;
    double diversity; /* of this step's statistics */
    double loss;      /* this worker's share: the mean over workers is the loss */
    /* (groups, codes) each, the model's, until its next call; to be summed with `sums`. */
    const double *probabilities; /* sums of p over hidden rows */
    const double *chosen;        /* how often each was the target */
} w2v_bert_result;

/* Forward, the losses, backward. Gradients are written (not added). */
tw_status w2v_bert_step(w2v_bert *m, const w2v_bert_batch *batch, const w2v_bert_step_options *options,
                        w2v_bert_result *result);
/* Forward only: without dropout and Gumbel noise; masks and distractors as `draws` says. */
tw_status w2v_bert_evaluate(w2v_bert *m, const w2v_bert_batch *batch, const nn_noise *draws, w2v_bert_result *result);

/* What statistics of codes say. Neither loss tells whether anything was learned: beside the one of prediction stands
 * what a net that knows nothing would have. */
typedef struct w2v_bert_metrics {
    double masked_chance;    /* nats: the entropy of the targets, over all groups */
    double soft_perplexity;  /* exp of the entropy of mean p: what the diversity loss sees; the mean of groups */
    double hard_perplexity;  /* of the targets' histogram: how many codes live; the mean of groups */
    double least_perplexity; /* hard, of the worst group: what a guard should look at */
    double information;      /* nats of a code about its frame: entropy of mean p less the mean entropy of p */
    double diversity;        /* of these statistics */
} w2v_bert_metrics;

/* Of sums and (groups, codes) statistics, as in a result. What nothing was counted for is 0. */
w2v_bert_metrics w2v_bert_measure(const w2v_bert_sums *sums, const double *probabilities, const double *chosen,
                                  size_t groups, size_t codes);

#endif
