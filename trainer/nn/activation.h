/* activation.h - swish, x sigmoid(x) (Ramachandran et al. 2017); the gated linear unit, p sigmoid(g) (Dauphin et al.
 * 2017); and SwiGLU, swish(g) p (Shazeer 2020). */
#ifndef NN_ACTIVATION_H
#define NN_ACTIVATION_H

#include <stddef.h>

/* y may be x. */
void nn_swish_forward(const float *x, size_t count, float *y);
/* From the gradient of y to that of x, in place. */
void nn_swish_backward(const float *x, size_t count, float *gradient);

/* x (rows, 2 width): p, then its gate g, as in PyTorch; y (rows, width). */
void nn_glu_forward(const float *x, size_t rows, size_t width, float *y);
/* x_gradient as x; not x's own array. */
void nn_glu_backward(const float *x, const float *y_gradient, size_t rows, size_t width, float *x_gradient);

/* x (rows, 2 width): the gate g, then p, as in Llama; y (rows, width). */
void nn_swiglu_forward(const float *x, size_t rows, size_t width, float *y);
/* x_gradient as x; not x's own array. */
void nn_swiglu_backward(const float *x, const float *y_gradient, size_t rows, size_t width, float *x_gradient);

#endif
