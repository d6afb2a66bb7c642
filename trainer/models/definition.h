/* definition.h - what makes a model: a name and a function that builds its net.
 *
 * To add one, write a file with a definition, NAME_model, and name it in MODELS. */
#ifndef MODEL_DEFINITION_H
#define MODEL_DEFINITION_H

#include "net.h"

/* The models there are. */
#define MODELS(X)                                                                                                      \
    X(cnn)                                                                                                             \
    X(resnet20)                                                                                                        \
    X(resnet32)                                                                                                        \
    X(resnet56)                                                                                                        \
    X(resnet110)                                                                                                       \
    X(resnet18)                                                                                                        \
    X(resnet34)                                                                                                        \
    X(resnet50)

typedef struct model_definition {
    const char *name;
    const char *summary; /* one line */
    /* Appends the layers, down to `classes` outputs. `depth` is the definition's, for families of models. */
    tw_status (*build)(nn_net *net, size_t depth, size_t classes);
    size_t depth;
    const char *schedule; /* of the learning rate, in the words of `--schedule`: what suits it on its usual data; NULL:
                           * a constant rate */
} model_definition;

#define DECLARE_MODEL(name) extern const model_definition name##_model;
MODELS(DECLARE_MODEL)
#undef DECLARE_MODEL

/* The same as a list, which ends with NULL. */
extern const model_definition *const model_definitions[];

#endif
