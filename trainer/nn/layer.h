/* layer.h - what a layer's file needs to be one.
 *
 * A layer turns the tensor at the end of the chain into the next one. Its file has a struct that begins with nn_layer,
 * forward, backward, the ops table, and the builder function declared in net.h. The net owns everything. */
#ifndef NN_LAYER_H
#define NN_LAYER_H

#include "engine.h"
#include "net.h"

/* Images between two layers. `diff` is the loss's gradient with respect to data, in the same layout; NULL where nobody
 * needs it (the net's input). */
typedef struct nn_tensor {
    struct nn_tensor *next;
    size_t channels, height, width;
    nn_memory *data, *diff;
    nn_region slot; /* of diff */
} nn_tensor;

typedef struct nn_layer nn_layer;

typedef struct nn_layer_ops {
    const char *name;
    /* (optional) from src->data to dst->data. */
    tw_status (*forward)(nn_layer *layer, int training);
    /* (optional) from dst->diff to src->diff and the parameters' gradients, all of them overwritten. */
    tw_status (*backward)(nn_layer *layer);
} nn_layer_ops;

struct nn_layer {
    const nn_layer_ops *ops;
    nn_tensor *src, *dst;
    nn_range parameters; /* in the net's table */
    size_t buffers;      /* tensors in the other table, up to this layer */
    int inside;          /* a residual branch: the chain cannot be cut before it */
};

/* What goes in or out where a net is cut; a count of 0: it is not cut there. */
typedef struct nn_edge {
    nn_memory *plain;
    size_t count;
    nn_op *out, *in; /* from the net to the array, and back */
} nn_edge;

/* The units of a finished net, and, of a stage, what it computes of them. */
typedef struct nn_cut {
    nn_unit *units;
    size_t *ends; /* of each unit: the layer behind it */
    size_t count;
    const nn_stage *stage; /* NULL: all */
    size_t first, end;     /* layers */
    nn_edge entrance, exit;
} nn_cut;

struct nn_net {
    nn_engine *engine;
    size_t images;
    nn_tensor *tensors; /* all; the latest first */
    nn_tensor *current; /* the end of the chain */
    nn_layer **layers;
    size_t layer_count;
    nn_layer *fork;      /* the open residual branch */
    nn_region join_slot; /* kept free for the gradient that waits for the shortcut; NN_REGIONS outside a branch */
    nn_table parameters, buffers;
    nn_cut cut;
};

/* Appends a layer of `size` bytes, zeroed, from the current tensor to `dst`, which becomes the current one. Parameters
 * declared since the last call are the layer's. */
tw_status nn_net_append(nn_net *net, size_t size, const nn_layer_ops *ops, nn_tensor *dst, nn_layer **layer);
/* A tensor over `data`, placed elsewhere, that no gradient reaches. */
tw_status nn_net_add(nn_net *net, nn_memory *data, const size_t image[3], nn_tensor **tensor);
/* A tensor over `data` (not placed yet: it goes among the activations). */
tw_status nn_net_tensor(nn_net *net, nn_memory *data, const size_t image[3], nn_tensor **tensor);
/* The images of `of` once more, as the end of the chain, with a gradient of its own in `slot`. */
tw_status nn_net_alias(nn_net *net, const nn_tensor *of, nn_region slot);
/* A gradient slot that neither the current tensor nor an open branch uses. */
nn_region nn_net_free_slot(const nn_net *net);

/* Declares a tensor behind those declared before. */
tw_status nn_net_declare_parameter(nn_net *net, const nn_declaration *declaration, nn_memory **value,
                                   nn_memory **gradient);
tw_status nn_net_declare_buffer(nn_net *net, const nn_declaration *declaration, nn_memory **value);

/* Appends a change of layout to that of `like`, unless the current tensor has it already. */
tw_status nn_change_layout(nn_net *net, nn_memory *like);
/* Appends the gradient of a ReLU that the layer before has applied already. */
tw_status nn_relu_applied(nn_net *net);

#endif
