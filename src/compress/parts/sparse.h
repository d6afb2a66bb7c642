/* sparse.h - the common half of every scheme that sends some elements and keeps the rest: the residual, the support
 * (which elements are sent), its section of the packet, and the sum of everybody's sections.
 *
 * A packet goes to every rank. Or, if the scheme's settings say so, the support goes in pieces (scatter.h), and of each
 * piece's sums the largest are sent on, as many as one rank sends of it: what Ok-Topk does (Li and Hoefler, PPoPP
 * 2022), but with pieces of equal length. What is not sent on has a residual of its own at the piece's owner. */
#ifndef TW_SPARSE_H
#define TW_SPARSE_H

#include "gather.h"
#include "kept.h"
#include "select.h"
#include "sums.h"

typedef struct tw_sparse tw_sparse;

/* What of one tensor is sent in this step. */
typedef struct tw_support {
    size_t most, count;
    uint32_t *index; /* ascending */
    float *value;    /* as the receivers will see it, once tw_sparse_send has been called */
    tw_select_hint hint;
    int open; /* what was sent is still in the residual: the next pass takes it out, or settle does */
} tw_support;

typedef struct tw_sparse_settings {
    double density;                                           /* what is expected to be sent, after any warm-up */
    double most_density;                                      /* the highest a step will ask for */
    size_t (*wanted)(const tw_sparse *sparse, size_t tensor); /* (optional) in the place of these: how many, always */
    const char *called; /* (optional) the residual's name in a state; it is not in units of the gradient's elements */
    int spread;         /* though the scheme has one_pass, it leaves no zeros behind; without scatter */
    void (*take)(tw_sparse *sparse, size_t tensor); /* updates a tensor's residual and takes what is sent of it */
    void (*complete)(tw_sparse *sparse);            /* (optional) see tw_gather_ops */
} tw_sparse_settings;

/* The head of such a scheme's struct. */
struct tw_sparse {
    tw_scheme scheme; /* first, as in every scheme's struct */
    /* Options, or set before tw_sparse_create by a scheme that does not offer them. */
    int64_t min_sent; /* elements of a tensor, however low the density */
    int feedback;     /* keep what is not sent for the next step; else drop it */
    int values, indices;
    double link;
    int state;    /* of the residual: TW_KEPT_FP32 or _BF16 */
    int64_t seed; /* of its rounding */
    int exchange; /* 1: in pieces, where there are several ranks; the scheme must have one_pass */
    tw_sparse_settings settings;
    tw_coding coding;    /* of values, indices and link */
    double density;      /* of the step under way: what is expected to be sent */
    double most_density; /* of the step under way: what may be sent at most */
    size_t count;        /* elements of compressed tensors */
    tw_kept residual;    /* of the compressed tensors, one after the other */
    size_t *offset;      /* of each tensor in it */
    tw_support *support; /* one a tensor */
    tw_selector selector;
    uint32_t *index; /* of the section being decoded */
    float *value;
    float *senders; /* what those count who sent each element of the tensor under way, if by_senders */
    tw_gather gather;
    tw_support *sums_sent; /* in pieces: of the sums of this rank's, one a tensor */
    tw_sums sums;          /* and what was not sent of them */
};

/* Of a scheme whose struct begins with a tw_sparse; for its ops->create. */
tw_status tw_sparse_create(tw_scheme *scheme, const tw_sparse_settings *settings);

/* Options that are alike in every scheme of this kind. A tensor of a thousand elements that sent one a step would learn
 * a thousand times slower than it should; min_sent costs next to nothing. */
#define TW_OPTION_MIN_SENT(type)                                                                                       \
    TW_OPTION("min_sent", TW_OPTION_INTEGER, offsetof(type, min_sent), "16", 1, 1e9, NULL,                             \
              "elements sent of each tensor at least, however low the density")
#define TW_OPTION_VALUES(initially)                                                                                    \
    TW_OPTION("values", TW_OPTION_CHOICE, offsetof(tw_sparse, values), initially, 0, 0, TW_VALUE_CHOICES,              \
              "how a value travels; what rounding loses stays in the residual")
#define TW_OPTIONS_INDICES                                                                                             \
    TW_OPTION("indices", TW_OPTION_CHOICE, offsetof(tw_sparse, indices), "auto", 0, 0, TW_INDEX_CHOICES,               \
              "how the positions travel; auto: as they are there and read the soonest, by link"),                      \
        TW_OPTION("link", TW_OPTION_REAL, offsetof(tw_sparse, link), "1000", 0, 1e6, NULL,                             \
                  "what the line carries, in Mbit/s; 0: so little that only bytes count")
#define TW_OPTION_FEEDBACK(type, initially)                                                                            \
    TW_OPTION("feedback", TW_OPTION_SWITCH, offsetof(type, feedback), initially, 0, 0, NULL,                           \
              "error feedback: what is not sent is added to the next step's gradient")

#define TW_OPTIONS_STATE                                                                                               \
    TW_OPTION("state", TW_OPTION_CHOICE, offsetof(tw_sparse, state), "fp32", 0, 0, "fp32|bf16",                        \
              "what is remembered of an element; bf16: half the memory, rounded at random"),                           \
        TW_OPTION("seed", TW_OPTION_INTEGER, offsetof(tw_sparse, seed), "1", 0, 1e15, NULL,                            \
                  "of the rounding with state=bf16")
#define TW_OPTION_SCATTER                                                                                              \
    TW_OPTION("exchange", TW_OPTION_CHOICE, offsetof(tw_sparse, exchange), "gather", 0, 0, "gather|scatter",           \
              "gather: to all ranks; scatter: in pieces, of whose sums the largest are sent on")

/* How many of n elements are sent: ceil(n * density), at least `least`, at most all. */
size_t tw_sparse_wanted(size_t n, double density, size_t least);

/* Tensor i's residual; and of a scheme that has no other, in fp32. */
tw_kept tw_sparse_kept(const tw_sparse *sparse, size_t tensor);
float *tw_sparse_residual(const tw_sparse *sparse, size_t tensor);
/* Scales what was not sent of the sums of this rank's piece of it, before anything is added. */
void tw_sparse_scale_sums(tw_sparse *sparse, size_t tensor, float factor);
/* How what is kept of it is rounded in this step. */
tw_noise tw_sparse_rounding(const tw_sparse *sparse, size_t tensor, tw_rounding_use use);

/* Plain error feedback, v += scale * g, as a source to select from, in the one pass that ops->one_pass speaks of; the
 * accumulation must outlive its use. */
typedef struct tw_accumulation {
    tw_scheme *scheme;
    tw_kept residual;
    tw_noise rounding;
    float *gradient;
    float scale;
} tw_accumulation;
tw_select_source tw_sparse_accumulate(tw_sparse *sparse, size_t tensor, tw_accumulation *accumulation);

/* Sends what stands in tensor i's support: rounds it to the wire's format, drops what rounds to zero, and takes it out
 * of the residual. */
void tw_sparse_send(tw_sparse *sparse, size_t tensor);

/* Runs `source` over tensor i, whose new values are its residual, and sends the k largest. */
void tw_sparse_send_top(tw_sparse *sparse, size_t tensor, const tw_select_source *source);

/* The scheme's ops->floor, of one that remembers the residual alone; and its next, settle, revert, walk, plan and
 * destroy. Before next, a scheme whose density changes sets density and most_density, alike on all ranks. */
unsigned tw_sparse_floor(const tw_scheme *scheme);
tw_status tw_sparse_next(tw_scheme *scheme, tw_round *round);
/* Takes what was sent out of the residuals where that was left open. */
void tw_sparse_settle(tw_scheme *scheme);
/* Puts what was sent back into the residual. */
void tw_sparse_revert(tw_scheme *scheme);
/* The residual as "residual/NAME", or what it is called, that of the sums as "section/NAME", and what the leftovers
 * remember. */
tw_status tw_sparse_walk(tw_scheme *scheme, tw_walk *walk);
/* "dgc: 577 of 576000 elements" */
void tw_sparse_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity);
void tw_sparse_destroy(tw_scheme *scheme);
#define TW_SPARSE_STEPS                                                                                                \
    .next = tw_sparse_next, .revert = tw_sparse_revert, .walk = tw_sparse_walk, .destroy = tw_sparse_destroy

/* Visits what adds over the ranks and is laid out like the residual. */
tw_status tw_sparse_walk_like(const tw_sparse *sparse, tw_walk *walk, const char *what, tw_kept array);

#endif
