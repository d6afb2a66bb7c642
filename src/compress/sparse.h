/* sparse.h - the common half of every scheme that sends some elements and keeps the rest: the residual, the packet of
 * (index, value) pairs, its all-gather, and the sum of everybody's packets in rank order. */
#ifndef TW_SPARSE_H
#define TW_SPARSE_H

#include "dense.h"
#include "packet.h"
#include "scheme.h"
#include "select.h"

/* What of one tensor is sent in this step. */
typedef struct tw_support {
    size_t most, count;
    uint32_t *index; /* ascending */
    float *value;    /* as the receivers will see it */
} tw_support;

typedef struct tw_sparse {
    tw_scheme *scheme;
    tw_value_code code;
    size_t least;        /* elements sent of a tensor, however low the density */
    size_t count;        /* elements of compressed tensors */
    float *residual;     /* of the compressed tensors, one after the other */
    size_t *offset;      /* of each tensor in it */
    tw_support *support; /* one a tensor */
    tw_selector selector;
    unsigned char *packet;
    size_t packet_capacity;   /* of the largest packet, in bytes */
    tw_packet_reader *reader; /* one a rank */
    uint32_t *index;          /* of the packet being decoded */
    float *value;
    tw_dense exact; /* the tensors that are not compressed */
    tw_dense wide;  /* the road taken when everybody's packets would outweigh a dense all-reduce */
    int use_wide;   /* this step takes it */
} tw_sparse;

typedef struct tw_sparse_settings {
    double most_density; /* the highest a step will ask for */
    long least;
    int values; /* a tw_value_code */
} tw_sparse_settings;

tw_status tw_sparse_create(tw_sparse *sparse, tw_scheme *scheme, const tw_sparse_settings *settings);
void tw_sparse_destroy(tw_sparse *sparse);

/* The option that goes with `least`, alike in every scheme that selects by density. A tensor of a thousand elements
 * that sent one a step would learn a thousand times slower than it should; these few cost next to nothing. */
#define TW_OPTION_MIN_SENT(type)                                                                                       \
    {                                                                                                                  \
        "min_sent", TW_OPTION_INTEGER, offsetof(type, min_sent), "16", 1, 1e9, NULL,                                   \
            "elements sent of each tensor at least, however low the density"                                           \
    }

/* How many of n elements are sent: ceil(n * density), at least `least`, at most all. */
size_t tw_sparse_wanted(size_t n, double density, size_t least);

/* Tensor i's residual. */
float *tw_sparse_residual(const tw_sparse *sparse, size_t tensor);

/* Runs `source` over tensor i, whose new values are its residual; takes the k largest out of the residual (what
 * rounding to the wire's format loses stays in it). */
void tw_sparse_take_top(tw_sparse *sparse, size_t tensor, const tw_select_source *source, double density);

/* A step's rounds: the packets' all-gather (or its wide road), then the all-reduce of the tensors that are not
 * compressed; a message without the one or the other has no such round. The scheme's ops->next calls it. */
typedef struct tw_sparse_step {
    double density;
    void (*take)(tw_scheme *scheme); /* updates the residuals and takes what is to be sent */
    /* (optional) Changes the exact tensors' sums before they are handed out. */
    void (*settle)(tw_scheme *scheme, float *values);
} tw_sparse_step;
tw_status tw_sparse_next(tw_sparse *sparse, const tw_sparse_step *step, tw_round *round);

/* Puts what was sent back into the residual. */
void tw_sparse_revert(tw_sparse *sparse);

/* "0.1 %: 577 of 576,000 elements" */
void tw_sparse_plan(const tw_sparse *sparse, size_t tensor, double density, char *text, size_t capacity);

tw_status tw_sparse_walk(tw_sparse *sparse, tw_walk *walk);

#endif
