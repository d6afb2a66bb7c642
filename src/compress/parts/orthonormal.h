/* orthonormal.h - makes a few long vectors orthonormal. */
#ifndef TW_ORTHONORMAL_H
#define TW_ORTHONORMAL_H

#include <stddef.h>

/* `count` vectors of `length` floats, one after the other, become unit vectors at right angles that span the same
 * space: Gram-Schmidt, each vector twice (Kahan's "twice is enough", in Parlett 1980), in double and in a fixed order.
 * A vector that lies in the span of those before it, up to fp32's rounding, has no direction of its own: it becomes
 * zero. Returns how many did. `scratch` has room for `length` doubles. The input is finite. */
size_t tw_orthonormalise(float *vectors, size_t count, size_t length, double *scratch);

#endif
