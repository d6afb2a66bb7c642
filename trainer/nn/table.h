/* table.h - named tensors that stand one after the other in one flat array. */
#ifndef NN_TABLE_H
#define NN_TABLE_H

#include "error.h"
#include "pager.h"

#include <stddef.h>
#include <stdint.h>

/* How a tensor begins. */
typedef enum nn_initial {
    NN_INITIAL_ZERO,
    NN_INITIAL_ONE,
    NN_INITIAL_HE,      /* normal, variance 2 / fan-in (He et al., Delving Deep into Rectifiers, 2015) */
    NN_INITIAL_SMALL,   /* a fifth of that deviation: a last layer's first guesses are then nearly uniform */
    NN_INITIAL_UNIFORM, /* between -scale and scale */
    NN_INITIAL_FORGET   /* an LSTM's bias: `scale` for the forget gate (Gers et al. 2000), 0 for the other three */
} nn_initial;

/* A tensor called "<layer>.<name>". */
typedef struct nn_declaration {
    const char *layer, *name;
    size_t dims;
    size_t shape[4];
    nn_initial initial;
    float scale; /* where the initial values have one */
} nn_declaration;

/* Tensors of a table: from `first` to before `end`. */
typedef struct nn_range {
    size_t first, end;
} nn_range;

/* All zero: an empty table. */
typedef struct nn_table {
    tw_tensor *tensors;
    size_t *offsets; /* in elements */
    nn_initial *initials;
    float *scales;
    size_t count;
    size_t elements;
    pager_unit *units; /* layers that are used as one */
    size_t unit_count;
    pager *pager;  /* NULL: all values are in memory */
    nn_range held; /* the tensors that are there, of a stage: stage.h; {0}: all */
} nn_table;

/* Appends a tensor; the strings are copied. */
tw_status nn_table_declare(nn_table *table, const nn_declaration *declaration);
void nn_table_free(nn_table *table);

size_t nn_table_elements(const nn_table *table, size_t index);
/* Draws the initial values of every tensor that is there. They depend on the seed and on the tensor's place in the
 * table alone. */
tw_status nn_table_initialise(const nn_table *table, uint64_t seed, float *values);

/* Called in a backward pass when the gradient of tensor `index` is complete; nothing touches it again before the next
 * pass. A failure ends the pass and is passed on. */
typedef tw_status (*nn_gradient_ready)(void *context, size_t index, float *gradient);

/* The tensors declared since the last call are used as one. `stays`: they are used at several places, and are always in
 * memory; such are the first or the last of a table. */
tw_status nn_table_end_unit(nn_table *table, int stays);
/* From now on a pager brings in the values and gradients of a complete table, of pages_take, before they are used. */
tw_status nn_table_page(nn_table *table, pager *by, float *values, float *gradients);
/* Before tensors of one unit are used. */
tw_status nn_table_use(const nn_table *table, nn_range range, pager_pass pass);

/* Announces a range, the last tensor first; nothing if `ready` is NULL, or `gradients`, of tensors that do not
 * learn. */
tw_status nn_table_announce(const nn_table *table, nn_range range, float *gradients, nn_gradient_ready ready,
                            void *context);

#endif
