/* corrected.h - the common half of the sparse schemes that apply momentum before they select (dgc, sdagc).
 *
 * Per compressed tensor, with g already scaled by 1/N and clipped:
 *     u = m*u + g;  v += u          momentum correction (with nesterov: v += m*u + g)
 * v is the residual, of which something is sent; with masking, u is forgotten there. The optimiser takes plain steps on
 * the sum. Tensors that are not compressed are reduced exactly and go through momentum afterwards, alike on every rank.
 * With beta2 it is Adam's direction (adam.h) that enters v, in the place of u. The optimiser then only decays weights.
 * During warm-up the density falls by fours from warmup_density. */
#ifndef TW_CORRECTED_H
#define TW_CORRECTED_H

#include "adam.h"
#include "sound.h"
#include "sparse.h"
#include "warmup.h"

/* The head of such a scheme's struct. */
typedef struct tw_corrected {
    tw_sparse sparse; /* v, and what is sent of it */
    double density, momentum, clip;
    tw_warmup warmup;
    int nesterov, masking;
    double most_times; /* of what is wanted of a tensor, the most that is sent */
    float *rate;       /* under which each tensor's residual was collected, 0: unknown; NULL: that does not matter */
    float *revision;   /* by which each tensor's residual is scaled in the step under way; NULL: by nothing */
    tw_kept momentum_buffer; /* u, laid out as v */
    tw_adam adam;            /* unless its beta2 is 0 */
    float *second_moment;    /* Adam's, laid out as v; NULL: v takes momentum */
    float **masked;          /* u where it was zeroed in this step, one list a tensor, as its support */
    tw_velocity velocity;    /* momentum of the tensors that are not compressed */
} tw_corrected;

#define TW_OPTION_MOMENTUM(called)                                                                                     \
    TW_OPTION("momentum", TW_OPTION_REAL, offsetof(tw_corrected, momentum), "0.9", 0, 0.9999, NULL,                    \
              "momentum " called "; the optimiser applies none beside it")
#define TW_OPTION_NESTEROV                                                                                             \
    TW_OPTION("nesterov", TW_OPTION_SWITCH, offsetof(tw_corrected, nesterov), "off", 0, 0, NULL,                       \
              "Nesterov's form of it")
#define TW_OPTIONS_ADAM                                                                                                \
    TW_OPTION("beta2", TW_OPTION_REAL, offsetof(tw_corrected, adam.beta2), "0", 0, 0.999999, NULL,                     \
              "Adam's memory of squares, with momentum for its beta1; 0: momentum SGD"),                               \
        TW_OPTION("epsilon", TW_OPTION_REAL, offsetof(tw_corrected, adam.epsilon), "1e-8", 1e-30, 1, NULL,             \
                  "what Adam adds to the root of the squares")
#define TW_OPTION_MASKING(initially)                                                                                   \
    TW_OPTION("masking", TW_OPTION_SWITCH, offsetof(tw_corrected, masking), initially, 0, 0, NULL,                     \
              "forget the momentum of what was just sent")
#define TW_OPTION_CLIP                                                                                                 \
    TW_OPTION("clip", TW_OPTION_REAL, offsetof(tw_corrected, clip), "0", 0, 1e9, NULL,                                 \
              "clip the global gradient norm here, before it enters the residual; 0: do not")
/* The head's options but for the density: how every list of them ends. `called` is the method's word for it. */
#define TW_OPTIONS_CORRECTED(called, masking_initially)                                                                \
    TW_OPTION_MIN_SENT(tw_sparse), TW_OPTION_MOMENTUM(called), TW_OPTION_NESTEROV,                                     \
        TW_OPTION_MASKING(masking_initially), TW_OPTION_CLIP, TW_OPTIONS_WARMUP(tw_corrected, "400"),                  \
        TW_OPTION_VALUES("log8"), TW_OPTIONS_INDICES, TW_OPTIONS_STATE, TW_OPTION_SCATTER

/* The defaults are as accurate as dense training in a run of 10,000 steps, where nobody says how long it is
 * (tw_spec_for_run). These are bold: one bit a value of a thousandth of everything, for the smallest message. */
extern const tw_preset tw_corrected_bold[];

/* Of a scheme whose struct begins with a tw_corrected; for its ops->create. follows_rate: what was held back is sent as
 * if under the learning rate it was computed with, v *= old/new when the rate changes (tw_scheme_set_rate); the steps
 * it makes add up to those of dense momentum SGD, whatever the schedule, while no change is by more than 1,024
 * times and no rate is 0, which counts as none told. */
tw_status tw_corrected_create(tw_scheme *scheme, double most_times, int follows_rate,
                              void (*take)(tw_sparse *sparse, size_t tensor));

/* The update of one tensor, as a source to select from, in the one pass that ops->one_pass speaks of; it must outlive
 * its use. */
typedef struct tw_correction {
    tw_scheme *scheme;
    tw_kept momentum_buffer, residual;
    tw_noise rounding, revision_rounding;
    float *second_moment; /* NULL: none */
    tw_adam_step adam;
    float *gradient;
    float scale, momentum;
    float revision; /* the residual's factor before anything is added; 1 unless it follows the rate and that changed */
    int nesterov;
} tw_correction;
tw_correction tw_correction_make(tw_corrected *corrected, size_t tensor);
tw_select_source tw_correction_source(tw_correction *correction);

/* A block of that update under way, and where what stands out is listed. */
typedef struct tw_correction_block {
    const tw_correction *of;
    size_t first;
    float threshold;
    uint32_t *index;
    float *value;
} tw_correction_block;
/* The row of the kernels that does it from element `at` of the block on; the moments of the new residual are added
 * unless they are NULL, as they are with Adam. */
size_t tw_correction_row(const tw_correction_block *block, tw_moments *moments, size_t at, size_t n, size_t listed,
                         size_t *done);
/* Brings n elements of the residual to the rate of this step, and lets the gradient enter by a row of one's own, whose
 * context the block is. */
size_t tw_correction_pass(tw_correction_block *block, size_t n, tw_sound_row row);

/* After tensor i was sent: with masking, forgets the momentum of what was, unless the tensor is so small that most of
 * its momentum would be. */
void tw_corrected_mask(tw_corrected *corrected, size_t tensor);

/* The scheme's ops->floor, next, revert, walk, momentum, clip and destroy. */
unsigned tw_corrected_floor(const tw_scheme *scheme);
tw_status tw_corrected_next(tw_scheme *scheme, tw_round *round);
/* Puts what was sent back into the residual, and what was masked into the momentum. */
void tw_corrected_revert(tw_scheme *scheme);
/* The residual as "residual/NAME", the rate it was collected under as "rate/NAME", one of its own that was told as
 * "told/NAME", u and the velocity as "momentum/NAME", Adam's squares as "second_moment/NAME", and what the leftovers
 * remember. */
tw_status tw_corrected_walk(tw_scheme *scheme, tw_walk *walk);
/* What is held back goes into the momentum, from which Adam's next steps take it; of the scheme's ops->give_moments. */
void tw_corrected_give_moments(tw_scheme *scheme);
float tw_corrected_momentum(const tw_scheme *scheme, int *nesterov);
double tw_corrected_clip(const tw_scheme *scheme);
void tw_corrected_destroy(tw_scheme *scheme);

#endif
