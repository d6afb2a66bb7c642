/* image_network.h - what a checkpoint says of a classifier of images, under keys of its own: enough to use it without
 * the data, the options or the program that trained it. */
#ifndef TRAINER_IMAGE_NETWORK_H
#define TRAINER_IMAGE_NETWORK_H

#include "image_reader.h"
#include "task.h"

#define IMAGE_NETWORK_CLASSES "network classes" /* the key of their names, a line each */

typedef struct image_network {
    const char *architecture; /* the model's name */
    image_form form;
    size_t classes;
    char **class_names; /* NULL: they are called by their numbers */
} image_network;

tw_status image_network_write(const image_network *network, tw_state *state);

/* One of a network's answers: a class and how likely it is. */
typedef struct image_class {
    const char *label;
    double probability;
} image_class;

/* The likeliest `most` classes of a file, the likeliest first; the labels are the predictor's. */
tw_status image_classify(task_predictor *p, const char *path, image_class *classes, size_t most, size_t *count);

/* The task's slots. */
tw_status image_predictor_open(const tw_state *state, size_t elements, task_predictor **out);
void image_predictor_close(task_predictor *p);
tw_status image_predict(task_predictor *p, const void *use, const char *path, const task_answer *answer);
tw_status image_describe_network(const task_predictor *p, cJSON *network, tw_state *tensors);

/* The options of using a network. */
typedef struct image_use {
    long top;
} image_use;
enum { IMAGE_TOP_MOST = 1000 };

#endif
