/* language_model.h - predicting the next token: an embedding, LSTM layers, a softmax over the vocabulary, as Zaremba,
 * Sutskever and Vinyals (Recurrent Neural Network Regularization, 2014) built it.
 *
 * Training text comes as `batch` parallel strips, `steps` tokens at a time; the layers' state is carried from one call
 * to the next, and gradients are cut there. Tensors are named as in PyTorch's example word_language_model:
 * encoder.weight, rnn.*, decoder.weight, decoder.bias; a model with tied weights has no decoder.weight.
 *
 * A model belongs to one thread. */
#ifndef TRAINER_LANGUAGE_MODEL_H
#define TRAINER_LANGUAGE_MODEL_H

#include "dropout.h"
#include "parameters.h"
#include "precision.h"

typedef struct language_model language_model;

typedef struct language_model_config {
    size_t layers, hidden;
    size_t embedding; /* features of a token */
    int tied;         /* one matrix is embedding and softmax weight (Press and Wolf 2017); needs embedding = hidden */
    float keep;       /* probability, on the embedding and on each layer's output; 1: no dropout */
    float range;      /* all parameters begin uniformly between -range and range */
} language_model_config;

/* A published model, with the steps and batch it was published with. */
typedef struct language_model_definition {
    const char *name, *summary;
    language_model_config config;
    size_t steps, batch;
} language_model_definition;

/* Ends with a definition without a name. */
extern const language_model_definition language_model_definitions[];
/* NULL if there is none of that name. */
const language_model_definition *language_model_find(const char *name);

typedef struct language_model_shape {
    size_t vocabulary;
    size_t steps; /* the most of a training call */
    size_t batch; /* strips of a training call */
    nn_precision precision;
} language_model_shape;

/* TW_ERROR_ARGUMENT says which size or option cannot be; TW_ERROR_UNSUPPORTED, that the precision cannot. */
tw_status language_model_create(const language_model_config *config, const language_model_shape *shape,
                                language_model **model);
void language_model_destroy(language_model *m);

const parameter_set *language_model_parameters(const language_model *m);
/* Draws the initial parameters: the same on every worker. */
void language_model_initialise(language_model *m, uint64_t seed);

/* Tokens in the order they are computed in: (steps, batch). */
typedef struct language_model_text {
    const int32_t *tokens;  /* below the vocabulary's size */
    const int32_t *targets; /* likewise, or -1: not counted. Usually the tokens one step later. */
    size_t steps;
} language_model_text;

/* Sums over the counted tokens of a call; perplexity is exp(loss / tokens). */
typedef struct language_model_result {
    double loss; /* natural logarithm */
    size_t tokens;
} language_model_result;

/* Forward and backward; carries the training state on. Gradients of the MEAN loss over the counted tokens are written
 * (not added). `ready` may be NULL. */
tw_status language_model_step(language_model *m, const language_model_text *text, const nn_noise *noise,
                              nn_gradient_ready ready, void *context, language_model_result *result);

/* The training state: (layers, h and c, batch, hidden), zero at first. To be saved and loaded with a checkpoint. */
float *language_model_state(language_model *m, size_t *count);
/* Sets it to zero: the text begins anew. */
void language_model_reset(language_model *m);

/* Begins to evaluate, or to generate: a state apart from the training state, for `batch` strips, zero. */
tw_status language_model_start_evaluation(language_model *m, size_t batch);
/* Forward only, without dropout; carries the state of start_evaluation on. text->targets may be NULL, and `result`
 * too. */
tw_status language_model_evaluate(language_model *m, const language_model_text *text, language_model_result *result);
/* What the last evaluation gave for each token: (steps, batch, vocabulary). */
const float *language_model_logits(const language_model *m);

#endif
