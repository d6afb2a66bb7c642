/* definition.h - what makes a model: a name and a function that builds its net.
 *
 * To add one, write a file with a definition and name it in list.c. */
#ifndef MODEL_DEFINITION_H
#define MODEL_DEFINITION_H

#include "net.h"

typedef struct model_definition {
    const char *name;
    const char *summary; /* one line */
    /* Appends the layers, down to `classes` outputs. `depth` is the definition's, for families of models. */
    tw_status (*build)(nn_net *net, size_t depth, size_t classes);
    size_t depth;
    const char *schedule; /* of the learning rate, in the words of `--schedule`: what suits it on its usual data */
} model_definition;

/* Ends with a definition without a name. */
extern const model_definition model_definitions[];

tw_status cnn_build(nn_net *net, size_t depth, size_t classes);
tw_status resnet_build(nn_net *net, size_t depth, size_t classes);

#endif
