/* stage.h - a network of which a process computes a part, between those that have the parts before and behind it.
 *
 * A network is a chain of units, which cannot be cut. The tables of a stage list the tensors of the whole network, so
 * that names, places and initial values are those of the whole. It touches its own units' values alone, so those of the
 * others take no memory. */
#ifndef NN_STAGE_H
#define NN_STAGE_H

#include <stddef.h>
#include <thinwire/thinwire.h>

/* Where a unit ends in the flat arrays, in elements. */
typedef struct nn_unit {
    size_t parameters, buffers;
} nn_unit;

/* A call goes forward: receive, unless the stage begins with unit 0; send, unless it ends with the last. Then back,
 * where send wants that: send_back, unless it begins with unit 0. */
typedef struct nn_stage {
    size_t first, end; /* units: from `first` to before `end` */
    void *context;
    /* x becomes what the stage before has sent. */
    tw_status (*receive)(void *context, float *x, size_t count);
    /* The stage behind gets y. In training *back may become 1, and dy the gradient of y; else the call ends here. In an
     * evaluation both are NULL. */
    tw_status (*send)(void *context, const float *y, size_t count, float *dy, int *back);
    /* The stage before gets the gradient of x, which stays as it is until the next call. */
    tw_status (*send_back)(void *context, const float *dx, size_t count);
} nn_stage;

#endif
