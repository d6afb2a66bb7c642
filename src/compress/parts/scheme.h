/* scheme.h - what every scheme is made of. A scheme is one file with one tw_scheme_ops at its end, and one line in
 * scheme_list.c; docs/how-to-add-a-scheme.md walks through one. */
#ifndef TW_SCHEME_H
#define TW_SCHEME_H

#include "spec.h"

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire_by_hand.h>

/* One tensor of the message. */
typedef struct tw_scheme_tensor {
    char *name;
    size_t dims, shape[TW_MAX_DIMS];
    size_t count;
    int compressed; /* 0: reduced as it is */
    char plan[128]; /* what will happen to it, for the banner */
} tw_scheme_tensor;

/* Options every scheme takes; the first four only one that leaves some tensors as they are. */
typedef struct tw_common_options {
    int64_t min_elements, min_dims;
    char *dense;
    int leftovers; /* fp32, fp16, bf16 */
    int64_t message_kb, in_flight, threads, per_host;
    int overlap;
} tw_common_options;

/* What one step cost this rank, by the packets themselves. */
typedef struct tw_account {
    int warmup;             /* the step was part of the scheme's warm-up */
    uint64_t elements_sent; /* of compressed tensors */
    uint64_t packet_bytes;  /* that carried compressed tensors, headers included */
    uint64_t index_bytes;   /* of these, that said which elements they were */
    uint64_t exact_bytes;   /* that carried the others */
} tw_account;

/* What a scheme remembers stays below unless a thousand gradients of TW_LARGEST_NORM are kept back, and a state that
 * says otherwise is not loaded: the next step could overflow. */
#define TW_LARGEST_KEPT 1e36

typedef struct tw_scheme_ops tw_scheme_ops;
typedef struct tw_outside tw_outside;

/* Who knows a sum of squares that others found: asked, where there is somebody to ask, once it is needed. */
typedef struct tw_squares_elsewhere {
    double (*ask)(void *context);
    void *context;
} tw_squares_elsewhere;

/* The head of every scheme's struct. */
struct tw_scheme {
    const tw_scheme_ops *ops;
    int rank, size;
    size_t count;
    tw_scheme_tensor *tensors;
    tw_common_options common;
    float **gradients;           /* of the step under way, one a tensor */
    const float *const *weights; /* that all ranks share, one array a tensor, where somebody tells; else NULL */
    const float *shares;         /* with by_senders: what each worker's part counts, where somebody tells; else NULL */
    int by_senders;              /* an element's mean is over the ranks that sent it, not over all */
    int carried;                 /* its packets go over channels, which check what they carry */
    uint64_t step;               /* steps done, skipped and reverted ones too: the number of the step under way */
    uint64_t begun;              /* steps begun since create, whatever state was loaded: no two have the same number */
    float scale; /* turns the local gradient into this rank's share of the mean: 1/N, clipping, the gradients' scale */
    float rate;  /* the learning rate of all tensors, as last told; 0: see tw_scheme_rate_of */
    int finite;  /* this rank's gradient is, as far as it has been looked at */
    double squares;                 /* the squares of what was found in this step not to be quiet, added up */
    tw_squares_elsewhere elsewhere; /* the like, of what else belongs to the step's norm */
    int taken;                      /* this step's gradient went into what the scheme remembers */
    int phase;                      /* how many rounds next has asked for; the scheme counts */
    int open;                       /* begun and not DONE */
    int failed;                     /* a round failed: the ranks no longer agree, so nothing more may be done */
    int skipped;                    /* some rank's gradient, or the sum, was not finite */
    int revertible;                 /* the last step is DONE and was not taken back */
    int settled;                    /* what it left open was settled since, to be saved: it stands */
    int asked;                      /* what the round under way is, a tw_round_kind: what its caller has to answer */
    tw_account account;
    const void *const *outgoing; /* an ALLTOALL's packets, whose place the caller's have to take */
    unsigned char *absent;       /* 1 for a tensor without a gradient on this rank: see next */
    float *rates;                /* learning rates of single tensors, where `rate` is 0: see tw_scheme_rate_of */
    double gradient_scale;       /* gradients arrive multiplied by it, and means leave so; `scale` divides it out */
};

/* The learning rate of a tensor, as last told; 0: nobody told. */
static inline float tw_scheme_rate_of(const tw_scheme *scheme, size_t tensor)
{
    return scheme->rate > 0 ? scheme->rate : scheme->rates[tensor];
}

/* Elements of the compressed tensors. */
static inline size_t tw_scheme_compressed(const tw_scheme *scheme)
{
    size_t elements = 0;
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) elements += scheme->tensors[i].count;
    return elements;
}

/* A tensor's stream of random numbers, of several that it may have. It is of the name, not of the number: messages may
 * be cut anywhere. */
uint64_t tw_scheme_stream(const tw_scheme *scheme, size_t tensor, int number);

/* Saving, checking, loading and regrouping are one walk over what a scheme remembers. */
typedef struct tw_walk tw_walk;
struct tw_walk {
    tw_status (*visit)(tw_walk *walk, const tw_remembered *entry);
    void *context;
};

/* Visits values of a tensor. */
tw_status tw_walk_floats(tw_walk *walk, const char *what, const tw_scheme_tensor *tensor, tw_state_kind kind,
                         float *values);

struct tw_scheme_ops {
    const char *name, *summary;
    int every_tensor;         /* leaves none as it is, whatever its size and shape */
    int one_pass;             /* its only pass over a compressed tensor's gradient takes in what is sound
                             (sound.h); a sparse scheme's leaves zeros behind, or spreads (sparse.h) */
    unsigned floor_bytes;     /* an element's worth of memory traffic that no implementation of it can avoid */
    size_t struct_size;       /* of the scheme's struct, which begins with a tw_scheme */
    const tw_option *options; /* offsets are into that struct */
    size_t option_count;
    const tw_preset *preset; /* (optional) its defaults, where they are not the options' own */
    /* (optional) Density, where it has one, and warm-up for a run of that length, where it is told
     * (tw_spec_for_run). */
    void (*of_run)(uint64_t steps, double *density, int64_t *warmup_steps);
    unsigned (*floor)(const tw_scheme *scheme); /* (optional) floor_bytes, where options change it; only they are set */
    /* (optional) Whether the options fit the table of which the scheme will be given a part; only they are set. */
    tw_status (*check)(const tw_scheme *scheme, const tw_tensor *tensors, size_t count);
    /* All members of the head are set. Allocates what the scheme needs; what it has allocated when it fails is freed
     * by destroy. */
    tw_status (*create)(tw_scheme *scheme);
    /* The next round of the step under way. Sets skipped before DONE, and revert is then called. The gradient of a
     * tensor that is absent is zero; what goes out of it changes no sum, and what is remembered for it stays as it is:
     * else the residual of a tensor that no rank uses would be sent, and dropped by the caller. */
    tw_status (*next)(tw_scheme *scheme, tw_round *round);
    /* (optional) Takes a finished or skipped step back: what was sent returns to the residual, so that nothing is lost;
     * what a rank whose gradient was not finite remembers is as before the step, or with one_pass, element by element,
     * that or what it would be on a healthy rank. */
    void (*revert)(tw_scheme *scheme);
    /* (optional) Does what the next step would have done first, so that a walk finds all that is remembered in its
     * place. What the scheme does from then on is the same as without, but the last step cannot be taken back. */
    void (*settle)(tw_scheme *scheme);
    tw_status (*walk)(tw_scheme *scheme, tw_walk *walk); /* (optional) what it remembers; changes nothing itself */
    float (*momentum)(const tw_scheme *scheme, int *nesterov); /* (optional) the momentum it owns */
    /* (optional) Of one that owns Adam's moments, where they mean something else here: turns those of an Adam that has
     * done as many steps, which were put in their place, into the scheme's own; and on one rank the scheme's into such
     * an Adam's, with all that is held back. */
    void (*take_moments)(tw_scheme *scheme);
    void (*give_moments)(tw_scheme *scheme);
    double (*clip)(const tw_scheme *scheme); /* (optional) its clipping threshold */
    /* What happens to a compressed tensor, for the banner; NULL: nothing is compressed. */
    void (*plan)(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity);
    void (*destroy)(tw_scheme *scheme); /* (optional) */
    const tw_outside *outside;          /* of a scheme from outside: what it was made from (outside.h) */
};

/* 1 for a scheme that leaves some tensors as they are, by their size, shape or name. The others exchange every tensor
 * as it is, or rounded. */
static inline int tw_leaves_tensors(const tw_scheme_ops *ops)
{
    return ops->plan && !ops->every_tensor;
}

/* The library's own schemes, in scheme_list.c; NULL past the end. */
const tw_scheme_ops *tw_scheme_own_at(size_t index);
/* Its spec stays what it is; those that stay come first. */
int tw_scheme_is_settled_at(size_t index);

#endif
