/* outer.h - the inside of tw_outer, shared by its files. A round belongs to one fragment of the tensors:
 *
 *     delta = theta - weights              what the local steps did, uphill, as a gradient is
 *     D = mean of the workers' delta       by a reducer of the fragment, whatever its scheme
 *     v = momentum * v + D
 *     theta -= lr * (D + momentum * v)     Nesterov's form, or lr * v
 *     weights = mixing * weights + (1 - mixing) * theta
 *
 * With eager=on a round is under way until the next begins, and D is one round late. Meanwhile a rank is where its own
 * part of the mean alone would have taken theta:
 *
 *     own_v = momentum * own_v + delta / N
 *     began = theta - lr * (delta / N + momentum * own_v)
 *     weights = began;    and the next delta = began - weights
 *
 * where own_v stays as it was until the round's mean has come, as v does. A part that comes to nothing is in the next.
 *
 * Rounds are counted, and belong to fragments in turn, the same on all ranks: a rank begins its next round when it has
 * taken its steps, and whoever comes first waits. No rank's count of steps shifts another's. */
#ifndef TW_SYNC_OUTER_H
#define TW_SYNC_OUTER_H

#include "comm.h"
#include "method.h"

#include <thinwire/thinwire_outer.h>

/* That weights may be from theta: multiplied by a share, at most the number of ranks, it is below what reducers take,
 * TW_LARGEST_NORM. */
#define TW_FARTHEST 1e28

enum { TW_MOST_FRAGMENTS = 32, TW_MOMENTS = 2 /* of the inner optimiser */, TW_SAMPLED = 65536 /* of a D */ };

typedef struct tw_outer_options {
    int64_t every, fragments, delay, moments[TW_MOMENTS];
    double rate, momentum, mixing;
    int nesterov, merge, eager;
    char *exchange; /* as the spec has it; NULL once it has been read */
} tw_outer_options;

/* Tensors that meet together: a range of the table. */
typedef struct tw_fragment {
    size_t first, count;    /* tensors */
    size_t start, elements; /* in the flat arrays */
    float *before;          /* so many elements of the D before, which are so far apart: for the next one's cosine */
    size_t sampled, apart;
    tw_reducer *reducer;
    int moved; /* this rank's weights are not where the last round put them */
    int lost;  /* the last round to which somebody gave something came to nothing */
} tw_fragment;

/* What the ranks tell each other in a round, before they exchange. */
typedef struct tw_outer_word {
    uint64_t round;
    uint32_t digest;    /* of the fragment's theta and v */
    uint16_t submitted; /* the exchange has begun here, or is to begin */
    uint16_t finishing; /* 1: this rank finishes, and gave its part before that; 2: its last part; 0: it steps */
    double weight;      /* of what this rank gives; 0: it has nothing */
    uint64_t saved;     /* tw_outer_moment of the state that it saved last; 0: of none */
} tw_outer_word;

/* Where the round is that is under way. */
typedef enum tw_outer_phase {
    TW_OUTER_IDLE,   /* there is none */
    TW_OUTER_GIVEN,  /* this rank's part is in `delta` */
    TW_OUTER_ARRIVED /* D is in `delta`, and waits for its step */
} tw_outer_phase;

struct tw_outer {
    const tw_outer_method *method;
    tw_outer_options options;
    tw_channel *channel;
    int rank, size;
    int alike; /* ranks whose gradients are averaged in each step, this one among them: they give the same */
    size_t count, elements;
    tw_tensor *tensors;
    size_t *places; /* of each in the flat arrays; one more at the end */
    size_t fragment_count;
    tw_fragment *fragments;
    float *theta, *v, *delta;    /* flat; delta is a fragment's D once that has come */
    float *began;                /* where this rank's steps began: theta, or with eager=on an array of its own */
    float *own_v, *own_part;     /* with eager=on: its parts' momentum, and the part that no mean has brought yet */
    float **moments[TW_MOMENTS]; /* the inner optimiser's, one array a tensor, as the caller has shown them; or NULL */
    const float **shown;         /* theta, one array a tensor, for the reducers */
    uint32_t *digests;           /* of each tensor's theta and v */
    tw_outer_word *words;        /* one a rank */
    double weight;               /* of what this rank gives */
    float *shares;   /* one a rank: what its part counts in the round's mean, 1 on the mean over all ranks */
    double *lengths; /* with merge=rda: of each tensor's parts, on the mean; then room to exchange them */

    int begun, loaded;
    int is_shared;  /* theta has been agreed on, or was loaded */
    uint64_t round; /* the next, or the one under way */
    int64_t since;  /* steps since the last round began */
    tw_outer_phase phase;
    double given;   /* this rank's weight in the round under way */
    int submitted;  /* its part is with the reducer */
    int finishing;  /* this rank takes no steps any more */
    int quiet;      /* of what it waits for the log is not told */
    int gives_last; /* and gave its part of this round when that was so */
    int all_finish; /* so did all ranks, in the last round */
    int met;        /* since the last step began all have told each other of a round, and none of them finishes */
    int heals;      /* this rank's weights are not finite: it takes theta whole */
    int against;    /* rounds in a row whose D pointed against the ones before */
    uint64_t saved; /* of what moment its last state is; 0: there is none */
    int apart;      /* in the last round those of two ranks were of two moments */
    tw_outer_counts stats;
    tw_traffic start; /* what beginning has cost, which is no round's */
};

/* What every call begins with: it is there, and this is the process that made it. */
tw_status tw_outer_need(const tw_outer *outer);
/* TW_ERROR_ORDER before there is a theta. */
tw_status tw_outer_need_shared(const tw_outer *outer);
/* The fragment of the round to come, or under way. */
tw_fragment *tw_outer_current(const tw_outer *outer);
/* What it waits for without its program is no news. */
void tw_outer_keep_quiet(tw_outer *outer, int quiet);

/* outer_registry.c: finds the method, and fills the options. *exchange is the reducer's spec, the caller's to free:
 * what the options say, and whatever the spec says that they do not know. */
tw_status tw_outer_find(const char *spec, const tw_outer_method **method);
tw_status tw_outer_parse(const tw_outer_method *method, const char *spec, tw_outer_options *options, char **exchange);

/* outer.c: all that is known without the others, for a struct of zeros. *exchange is the caller's to free. */
tw_status tw_outer_describe(tw_outer *outer, const char *spec, const tw_tensor *tensors, size_t count, char **exchange);

/* outer_state.c. In a state that becomes another rank's: nobody has moved from theta, and nothing is to be healed. */
tw_status tw_outer_forget_own(const tw_outer *plan, const char *prefix, tw_state *state);
/* Whether all bytes are 0. */
int tw_outer_is_nothing(const void *data, size_t bytes);
/* The prefix of what the exchange of a fragment remembers. */
tw_status tw_outer_join_exchange(char *text, size_t room, const char *prefix, size_t fragment);

/* outer_round.c: what all ranks give becomes D, and the phase ARRIVED; or the round ends, IDLE, when it comes to
 * nothing. Whatever the phase was. */
tw_status tw_outer_await(tw_outer *outer);

/* A number of what is the same on all ranks at a moment: states that have the same can be loaded together. */
uint64_t tw_outer_moment(const tw_outer *outer);

/* Whether there is an array for each tensor. */
tw_status tw_outer_check_arrays(const tw_outer *outer, float *const *arrays, const char *argument);

/* outer_moments.c: whether those are there that the options average; and their mean, at the end of a round whose D has
 * been taken, which is a collective. */
tw_status tw_outer_check_moments(const tw_outer *outer);
tw_status tw_outer_average_moments(tw_outer *outer);

/* outer_host.c: what averaging inside the host has cost this rank. */
tw_traffic tw_outer_host_traffic(const tw_outer *outer);

/* outer_merge.c, with merge=rda: this rank's part, if it gives one, becomes as long as all ranks' are on the mean; and
 * so does D. `weights` is what those of the ranks add up to. The first is a collective. */
tw_status tw_outer_give_directions(tw_outer *outer, double weights);
void tw_outer_take_directions(const tw_outer *outer);

/* outer_update.c: the arithmetic, over flat arrays, and a digest of what stands in them afterwards. */
/* What the products of D and the v before add up to: for what the outer step makes of D. */
typedef struct tw_outer_sums {
    double mean, momentum, both;
} tw_outer_sums;
typedef struct tw_outer_arrays {
    float *v, *theta, *weights;
    float mixing; /* how much the weights keep of themselves */
} tw_outer_arrays;
void tw_outer_descend(const tw_outer_options *options, const float *mean, size_t count, const tw_outer_arrays *arrays,
                      uint32_t digests[2], tw_outer_sums *sums);
/* What the steps did, with a part that no mean has brought yet, or NULL. 1: an element of it is NaN or above `most`. */
int tw_outer_subtract(const float *began, const float *weights, const float *own_part, size_t count, float most,
                      float *delta);
/* As the part, one of so many, would take theta. */
void tw_outer_go_on(const tw_outer_options *options, int parts, const float *part, const float *theta, size_t count,
                    const float *own_v, float *began);
/* Its momentum, once a mean has brought the part, or others' alone: NULL. */
void tw_outer_count_own(const tw_outer_options *options, const float *part, size_t count, float *own_v);
/* Of all tensors, as they are now. */
void tw_outer_digest(const tw_outer *outer);

#endif
