/* method.h - what a method of local updates is: which of the outer loop's options it takes, and what they are where
 * nobody says. A method is one file with one tw_outer_method, and one line in method_list.c. */
#ifndef TW_SYNC_OUTER_METHOD_H
#define TW_SYNC_OUTER_METHOD_H

#include "spec.h"

typedef struct tw_outer_method {
    const char *name, *summary;
    int takes_momentum;       /* outer_lr, outer_momentum and nesterov: otherwise the mean of the weights is taken */
    int takes_fragments;      /* fragments, delay and mixing: otherwise all tensors meet at once, and nobody goes on
                               * meanwhile */
    const tw_preset *presets; /* defaults that are not the options' own; ends in {NULL}, and may be NULL */
} tw_outer_method;

/* The list, in method_list.c; NULL past the end. */
const tw_outer_method *tw_outer_method_at(size_t index);

#endif
