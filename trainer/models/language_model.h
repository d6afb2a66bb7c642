/* language_model.h - predicting the next token: an embedding, layers, a softmax over the vocabulary. The layers are
 * LSTMs, as Zaremba, Sutskever and Vinyals (Recurrent Neural Network Regularization, 2014) built it, or the blocks of a
 * transformer in the shape of Llama, Qwen2 or Qwen3 (transformer.h).
 *
 * Training text comes as `batch` parallel strips, `steps` tokens at a time. LSTMs carry their state from one call to
 * the next, and gradients are cut there; to a transformer each call is a text by itself. Tensors are named as in
 * PyTorch's example word_language_model: encoder.weight, rnn.*, decoder.weight, decoder.bias; or as in Hugging Face's
 * LlamaForCausalLM: model.embed_tokens.weight, model.layers.*, model.norm.weight, lm_head.weight. A model with tied
 * weights has no decoder.weight or lm_head.weight.
 *
 * A model belongs to one thread. */
#ifndef TRAINER_LANGUAGE_MODEL_H
#define TRAINER_LANGUAGE_MODEL_H

#include "decoder_block.h"
#include "parameters.h"
#include "precision.h"
#include "stage.h"

typedef struct language_model language_model;

typedef struct language_model_config {
    size_t layers, hidden;
    size_t embedding; /* features of a token */
    int tied;         /* one matrix is embedding and softmax weight (Press and Wolf 2017); needs embedding = hidden */
    float keep;       /* probability, on the embedding and on each layer's output; 1: no dropout */
    float range;      /* all parameters begin uniformly between -range and range; norms at 1 */
    size_t heads;     /* of a transformer, which has embedding = hidden; 0: LSTMs */
    size_t kv_heads;  /* of its keys and values, divides heads */
    size_t head;      /* width of a head, even; 0: hidden / heads */
    size_t inner;     /* width of its feed-forward part */
    double theta;     /* base of its rotary positions, above 1 */
    float epsilon;    /* of its norms, above 0 */
    decoder_family family;
    nn_rotary_scaling scaling; /* of its positions */
    nn_lora_options lora;      /* adapters of a transformer, which are then all that learns */
} language_model_config;

/* Of a transformer, the width of a head. */
size_t language_model_head(const language_model_config *config);
/* The inner width that Llama has: two thirds of 4 hidden, for SwiGLU has three matrices, up to a multiple of 32. */
size_t language_model_inner(size_t hidden);

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
    const nn_stage *stage; /* of a transformer that is cut; NULL: all of it */
} language_model_shape;

/* TW_ERROR_ARGUMENT says which size or option cannot be; TW_ERROR_UNSUPPORTED, that the precision cannot. */
tw_status language_model_create(const language_model_config *config, const language_model_shape *shape,
                                language_model **model);
void language_model_destroy(language_model *m);
/* The tensors that such a model has, into an empty table, without one that has weights. Fails as its making would; the
 * table is the caller's to free all the same. */
tw_status language_model_tensors(const language_model_config *config, size_t vocabulary, nn_table *table);

/* Where it can be cut: ends of the embedding, of each block, of the last norm and of the last product. NULL, and *count
 * is 0: nowhere. The array is the model's. */
const nn_unit *language_model_units(const language_model *m, size_t *count);

/* Its gradients are NULL where adapters learn in their place. */
const parameter_set *language_model_parameters(const language_model *m);
/* NULL where there are none. */
const parameter_set *language_model_adapters(const language_model *m);
/* Draws the initial parameters, and the adapters': the same on every worker. */
tw_status language_model_initialise(language_model *m, uint64_t seed);
/* Has a pager bring in layers before they are used, from before their first values on: see nn_table_page. */
tw_status language_model_page(language_model *m, pager *by);

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
 * (not added): those of the adapters, where there are some. `ready` may be NULL. The loss is the last stage's alone. */
tw_status language_model_step(language_model *m, const language_model_text *text, const nn_noise *noise,
                              nn_gradient_ready ready, void *context, language_model_result *result);

/* The training state: (layers, h and c, batch, hidden), zero at first. To be saved and loaded with a checkpoint. A
 * transformer has none: *count is 0. */
float *language_model_state(language_model *m, size_t *count);
/* Sets it to zero: the text begins anew. */
void language_model_reset(language_model *m);

/* Begins to evaluate: a state apart from the training state, for `batch` strips, zero. */
tw_status language_model_start_evaluation(language_model *m, size_t batch);
/* Begins to generate: one strip, of which a transformer, too, reads on from call to call. It remembers up to as many
 * tokens as the shape has steps. When they are full it forgets the older half, and reads the newer once more as the
 * beginning of a text: what it says is what it would say of these tokens alone. */
tw_status language_model_start_writing(language_model *m);
/* Forward only, without dropout; carries on what was begun. text->targets may be NULL, and `result` too. */
tw_status language_model_evaluate(language_model *m, const language_model_text *text, language_model_result *result);
/* What the last evaluation gave for each token: (steps, batch, vocabulary). */
const float *language_model_logits(const language_model *m);

#endif
