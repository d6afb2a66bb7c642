/* list.c - the models there are. */
#include "definition.h"
#include "model.h"

#define MODEL_AT(name) &name##_model,
#define MODEL_NAME(name) " " #name

const model_definition *const model_definitions[] = {MODELS(MODEL_AT) NULL};
const char model_help[] = "The network, one of:" MODELS(MODEL_NAME);
