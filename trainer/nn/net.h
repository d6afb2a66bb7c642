/* net.h - a network: a chain of layers over images, built once for one number of images.
 *
 *     nn_net_create(&input, NN_FP32, &net);
 *     nn_convolution(net, "conv1", &(nn_convolution_options){.filters = 16, .kernel = 3, .stride = 1, .padding = 1});
 *     nn_relu(net);
 *     nn_linear(net, "fc", 10, NN_INITIAL_HE);
 *     nn_net_finish(net);                    // the parameter table is complete: allocate, then
 *     nn_net_bind(net, &arrays);
 *     nn_net_forward(net, images, 1);
 *     ... nn_cross_entropy(nn_net_output(net), ..., nn_net_output_gradient(net)) ...
 *     nn_net_backward(net, ready, context);
 *
 * The functions named after layers append one layer to the chain; each is a file. `name` is the prefix of the layer's
 * tensors ("conv1" gives "conv1.weight" and "conv1.bias"). */
#ifndef NN_NET_H
#define NN_NET_H

#include "precision.h"
#include "stage.h"
#include "table.h"

typedef struct nn_net nn_net;

typedef struct nn_input {
    size_t images, channels, height, width;
} nn_input;

/* TW_ERROR_UNSUPPORTED: this processor does not compute in `precision`. */
tw_status nn_net_create(const nn_input *input, nn_precision precision, nn_net **net);
void nn_net_destroy(nn_net *net);

/* ---- layers ---- */

typedef struct nn_convolution_options {
    size_t filters, kernel, stride, padding;
    int bias;
    int relu; /* ReLU in the same pass */
} nn_convolution_options;

tw_status nn_convolution(nn_net *net, const char *name, const nn_convolution_options *options);
/* Over each channel; keeps running statistics (momentum 0.1, variance unbiased) for nn_net_forward without training. */
tw_status nn_batch_norm(nn_net *net, const char *name, int relu);
tw_status nn_relu(nn_net *net);
/* Windows of size x size, `stride` pixels apart, of which the first begin `padding` (less than size) outside. */
typedef struct nn_window {
    size_t size, stride, padding;
} nn_window;

/* Maximum over what is inside of each window. */
tw_status nn_max_pool(nn_net *net, const nn_window *window);
/* Mean over each channel's plane. */
tw_status nn_global_average_pool(nn_net *net);
/* Row-major (images, channels * height * width); linear does this by itself. */
tw_status nn_flatten(nn_net *net);
tw_status nn_linear(nn_net *net, const char *name, size_t outputs, nn_initial initial);
/* The layers between fork and join are a residual branch: join adds what came to fork, then applies ReLU. Where the
 * branch halves the plane or adds channels, the shortcut takes every second pixel and leaves the new channels zero
 * (option A of He et al., Deep Residual Learning for Image Recognition, 2015).
 *
 * Or the shortcut has layers of its own (option B): those between nn_shortcut, which ends the branch and goes back to
 * what came to fork, and join. They must end in the branch's shape. */
tw_status nn_fork(nn_net *net);
tw_status nn_shortcut(nn_net *net);
tw_status nn_join(nn_net *net);

/* Values that the last layer makes of an image. */
size_t nn_net_outputs(const nn_net *net);

/* Nothing can be appended afterwards. */
tw_status nn_net_finish(nn_net *net);

/* ---- stages ---- */

/* Where a finished net can be cut. */
const nn_unit *nn_net_units(const nn_net *net, size_t *count);
/* The net is finished and not bound yet: from now on it is a stage, which lives as long. NULL: it stays whole. */
tw_status nn_net_hold(nn_net *net, const nn_stage *stage);
/* Whether another stage goes on after this one; then, after nn_net_forward: what goes there goes there. *back: whether
 * nn_net_backward is to follow. */
int nn_net_goes_on(const nn_net *net);
tw_status nn_net_send(nn_net *net, int training, int *back);

/* ---- parameters ---- */

/* Trainable tensors, in forward order; the net's. */
const nn_table *nn_net_parameters(const nn_net *net);
/* Running statistics. */
const nn_table *nn_net_buffers(const nn_net *net);

/* ---- running ---- */

typedef struct nn_arrays {
    float *parameters, *gradients, *buffers; /* as the tables say */
    void *arena;                             /* nn_net_arena_bytes(), 64-byte aligned; content does not matter */
} nn_arrays;

/* See nn_table_page. */
tw_status nn_net_page(nn_net *net, pager *by, float *values, float *gradients);
/* The same pager serves a net that takes turns with the other on its arrays. */
void nn_net_page_like(nn_net *net, const nn_net *other);

size_t nn_net_arena_bytes(const nn_net *net);
/* Cheap when nothing has changed. Nets that take turns may share all arrays. */
tw_status nn_net_bind(nn_net *net, const nn_arrays *arrays);

/* Training: batch norm uses the batch's statistics and updates the running ones. The images stay until backward. */
tw_status nn_net_forward(nn_net *net, const float *images, int training);
/* (images, outputs), row-major. The caller fills the gradient between forward and backward. */
float *nn_net_output(const nn_net *net);
float *nn_net_output_gradient(const nn_net *net);

/* Writes every parameter's gradient. `ready` may be NULL. */
tw_status nn_net_backward(nn_net *net, nn_gradient_ready ready, void *context);

#endif
