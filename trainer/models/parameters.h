/* parameters.h - what every model has: a table of named tensors, and their values and gradients in two flat arrays. */
#ifndef MODEL_PARAMETERS_H
#define MODEL_PARAMETERS_H

#include "table.h"

typedef struct parameter_set {
    const nn_table *table; /* the model's */
    float *values, *gradients;
} parameter_set;

/* Zeroed arrays for a complete table. */
tw_status parameter_set_allocate(const nn_table *table, parameter_set *set);
/* The same of values that do not learn: there are no gradients. */
tw_status parameter_set_allocate_frozen(const nn_table *table, parameter_set *set);
void parameter_set_free(parameter_set *set);

/* `count` floats, zeroed, at a multiple of 64 bytes; free() releases. NULL without memory. */
float *parameter_array(size_t count);

#endif
