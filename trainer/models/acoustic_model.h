/* acoustic_model.h - from frames of features to scores of labels: bidirectional LSTM layers or a speech encoder of
 * conformer blocks, an optional linear bottleneck, a linear layer to the labels. Before the LSTM layers there may be
 * two convolutions that sub-sample (front_end.h). Two ways to train it:
 *
 *   - on whole utterances of different lengths, with a loss of the caller's (CTC; with the convolutions this is the
 *     shape of DeepSpeech 2, Amodei et al. 2016);
 *   - on windows of frames with a label for each frame (the shape of IBM's Switchboard models: 6 layers of 512 cells a
 *     direction, a bottleneck of 256, windows of 21 frames).
 *
 * Dropout is on each LSTM layer's output, and in the speech encoder where conformers have it. Tensors: the front end's,
 * "rnn.*" as in PyTorch's nn.LSTM, or the speech encoder's; "bottleneck.*", "output.*".
 *
 * Convolutions make a row of scores of four frames, so they are for whole utterances only.
 * A model belongs to one thread. */
#ifndef TRAINER_ACOUSTIC_MODEL_H
#define TRAINER_ACOUSTIC_MODEL_H

#include "dropout.h"
#include "parameters.h"
#include "precision.h"
#include "speech_encoder.h"

typedef struct acoustic_model acoustic_model;

typedef struct acoustic_model_config {
    size_t features;   /* of a frame */
    size_t layers;     /* of LSTM; 0: the speech encoder */
    size_t hidden;     /* cells a direction */
    size_t bottleneck; /* its outputs; 0: none */
    size_t labels;
    float keep; /* probability; 1: no dropout */
    nn_precision precision;
    speech_encoder_config encoder; /* its features and its dropout are those above */
    speech_encoder_freeze freeze;  /* the part of the encoder that never learns */
    size_t channels;               /* of the convolutions before the LSTM layers; 0: there are none */
} acoustic_model_config;

/* TW_ERROR_ARGUMENT says which size cannot be; TW_ERROR_UNSUPPORTED, that the precision cannot. */
tw_status acoustic_model_create(const acoustic_model_config *config, acoustic_model **model);
void acoustic_model_destroy(acoustic_model *m);
/* How many parameters such a model has; takes memory for their names only. */
tw_status acoustic_model_elements(const acoustic_model_config *config, size_t *elements);

const parameter_set *acoustic_model_parameters(const acoustic_model *m);
/* Draws the initial parameters: the same on every worker. */
tw_status acoustic_model_initialise(acoustic_model *m, uint64_t seed);
/* Has a pager bring in layers before they are used, from before their first values on: see nn_table_page. */
tw_status acoustic_model_page(acoustic_model *m, pager *by);

/* The first so many tensors never learn: no gradient of theirs is written, and `ready` counts from behind them. */
size_t acoustic_model_frozen(const acoustic_model *m);
/* Whether the whole encoder stands still for now: a step writes zeros as the gradients of what lies before the last
 * layers, and announces them. */
void acoustic_model_hold(acoustic_model *m, int held);
/* How many rows of scores an utterance of so many frames has. */
size_t acoustic_model_rows(const acoustic_model *m, size_t frames);

/* Utterances or windows side by side; calls may differ in shape. What stands beyond an end does not matter, as long as
 * it is finite. */
typedef struct acoustic_model_batch {
    size_t steps, batch;
    const size_t *lengths; /* (batch), at most `steps`; NULL: all are `steps` long */
    const float *frames;   /* (steps, batch, features) */
} acoustic_model_batch;

/* ---- whole utterances ---- */

typedef struct acoustic_model_loss {
    /* `scores`: logarithms of the softmax over the labels, (rows of `steps`, batch, labels). Writes the gradient of the
     * loss with respect to the LOGITS (not to the scores) into `gradient`, as scores, zero beforehand; what it leaves
     * beyond an utterance's end does not matter. Its failure ends the step. */
    tw_status (*compute)(void *context, const acoustic_model_batch *batch, const float *scores, float *gradient);
    void *context;
} acoustic_model_loss;

/* Forward, the loss, backward. Gradients are written (not added). `ready` may be NULL. */
tw_status acoustic_model_step(acoustic_model *m, const acoustic_model_batch *batch, const acoustic_model_loss *loss,
                              const nn_noise *noise, nn_gradient_ready ready, void *context);
/* Forward only, without dropout. *scores are the model's, until its next call. */
tw_status acoustic_model_evaluate(acoustic_model *m, const acoustic_model_batch *batch, const float **scores);

/* ---- a label for each frame ---- */

/* Sums over the frames that have a target. */
typedef struct acoustic_model_result {
    double loss; /* natural logarithm */
    size_t frames, correct;
} acoustic_model_result;

/* Targets (steps, batch): a label, or -1: not counted, as all beyond an end must be. Gradients of the MEAN loss over
 * the counted frames are written (not added). `ready` may be NULL. */
tw_status acoustic_model_step_frames(acoustic_model *m, const acoustic_model_batch *batch, const int32_t *targets,
                                     const nn_noise *noise, nn_gradient_ready ready, void *context,
                                     acoustic_model_result *result);
tw_status acoustic_model_evaluate_frames(acoustic_model *m, const acoustic_model_batch *batch, const int32_t *targets,
                                         acoustic_model_result *result);

#endif
