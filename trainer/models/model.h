/* model.h - a network one worker trains: flat parameters, flat gradients, a table of named tensors.
 *
 * All parameters stand in one array and all gradients in another, tensor after tensor in table order, so that update,
 * checkpoint and exchange are loops over one array. A model belongs to one thread. */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "pager.h"
#include "precision.h"
#include "stage.h"

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

typedef struct model model;

/* What goes in and comes out. */
typedef struct model_shape {
    size_t channels, height, width; /* of one image */
    size_t classes;
    size_t batch; /* the most images a call brings */
    nn_precision precision;
    size_t most_parameters; /* a larger network is TW_ERROR_FORMAT, before there is memory for it; 0: any */
    const nn_stage *stage;  /* the part of it that is computed; NULL: all of it */
} model_shape;

/* Called by model_step when tensor `index`'s gradient is complete (backward order); the gradient will not be touched
 * again before the next model_step. A failure ends the step and is passed on. */
typedef tw_status (*model_gradient_ready)(void *context, size_t index, float *gradient);

/* Sums over the images of a call; zeros where they are the last stage's. */
typedef struct model_result {
    double loss; /* sum of cross-entropies, natural logarithm */
    size_t correct;
    size_t images;
} model_result;

/* Makes a model by name. TW_ERROR_ARGUMENT lists the names when it is unknown; TW_ERROR_UNSUPPORTED says that this
 * processor does not compute in the precision. */
tw_status model_create(const char *name, const model_shape *shape, model **out);
void model_destroy(model *m);

/* Names and one-line descriptions, for help; NULL past the end. */
const char *model_name(size_t index);
const char *model_summary(size_t index);
/* All names in one sentence. */
extern const char model_help[];
int model_exists(const char *name);
/* The schedule of the learning rate that suits a model, in the words of `--schedule`; NULL where it has none, and for
 * an unknown name. */
const char *model_schedule(const char *name);

/* The trainable tensors, in forward order. */
const tw_tensor *model_tensors(const model *m, size_t *count);
/* Flat arrays; tensor i begins at model_offset(m, i). */
float *model_parameters(model *m);
float *model_gradients(model *m);
size_t model_offset(const model *m, size_t index);
size_t model_parameter_count(const model *m);

/* Where it can be cut; the model's. */
const nn_unit *model_units(const model *m, size_t *count);

/* What is not trained but belongs to the model (running means and variances), in one flat array, with its own table. */
const tw_tensor *model_buffer_tensors(const model *m, size_t *count);
float *model_buffers(model *m);
size_t model_buffer_count(const model *m);

/* Draws the initial parameters (He et al. 2015, normal, fan-in) from the seed: the same on every worker. */
tw_status model_initialise(model *m, uint64_t seed);
/* Has a pager bring in layers before they are used, from before their first values on: see nn_table_page. */
tw_status model_page(model *m, pager *by);

/* Forward and backward over `count` images (count, channels, height, width), labels < classes. Gradients of the MEAN
 * loss are written (not added). `ready` may be NULL. */
tw_status model_step(model *m, const float *images, const uint16_t *labels, size_t count, model_gradient_ready ready,
                     void *context, model_result *result);
/* Forward only, with running statistics in place of the batch's. */
tw_status model_evaluate(model *m, const float *images, const uint16_t *labels, size_t count, model_result *result);
/* The same, to (count, classes) probabilities. */
tw_status model_predict(model *m, const float *images, size_t count, double *probabilities);

#endif
