/* dgc - Deep Gradient Compression (Lin, Han, Mao, Wang, Dally; ICLR 2018, arXiv 1712.01887).
 *
 * Per tensor, with g already scaled by 1/N and clipped:
 *     u = m*u + g;  v += u          momentum correction (with nesterov: v += m*u + g)
 *     send the k largest |v|        exactly k, chosen from candidates that the update itself collects
 *     v = 0, u = 0 where sent       the residual; momentum factor masking
 * The optimiser takes plain steps on the sum: the momentum is in here. Tensors that are not compressed are reduced
 * exactly and go through momentum afterwards, alike on every rank. Local clipping is at clip * N^-1/2, because g
 * carries the 1/N (section 3.3 and appendix C). During warm-up the density falls by fours from warmup_density.
 *
 * With beta2 what is sent is a part of Adam's direction (adam.h): what is not in the paper.
 *
 * revision=rate is not the paper's: what was held back is sent as if under the learning rate it was computed with
 * (corrected.h). */
#include "corrected.h"

#include "error.h"

typedef struct dgc {
    tw_corrected corrected;
    int revision;
} dgc;

enum { REVISION_OFF, REVISION_RATE };

static const tw_option options[] = {
    {"density", TW_OPTION_REAL, offsetof(tw_corrected, density), "0.04", 1e-7, 1, NULL,
     "fraction of each tensor that is sent"},
    {"revision", TW_OPTION_CHOICE, offsetof(dgc, revision), "off", 0, 0, "off|rate",
     "rate: the residual is scaled as the learning rate changes, so that each gradient counts at its own"},
    TW_OPTIONS_CORRECTED("correction", "on"),
    TW_OPTIONS_ADAM,
};

static void dgc_take(tw_sparse *sparse, size_t tensor)
{
    tw_corrected *self = (tw_corrected *)sparse;
    tw_correction correction = tw_correction_make(self, tensor);
    tw_select_source source = tw_correction_source(&correction);
    tw_sparse_send_top(sparse, tensor, &source);
    tw_corrected_mask(self, tensor);
}

static tw_status dgc_create(tw_scheme *scheme)
{
    const dgc *self = (const dgc *)scheme;
    TW_TRY(tw_adam_check(self->corrected.momentum, self->corrected.adam.beta2));
    return tw_corrected_create(scheme, 1, self->revision == REVISION_RATE, dgc_take);
}

#define DGC                                                                                                            \
    .one_pass = 1, .floor = tw_corrected_floor, .struct_size = sizeof(dgc), TW_OPTIONS(options), .create = dgc_create, \
    .next = tw_corrected_next, .revert = tw_corrected_revert, .walk = tw_corrected_walk,                               \
    .momentum = tw_corrected_momentum, .give_moments = tw_corrected_give_moments, .clip = tw_corrected_clip,           \
    .plan = tw_sparse_plan, .destroy = tw_corrected_destroy

const tw_scheme_ops tw_scheme_dgc = {
    .name = "dgc",
    .summary = "Deep Gradient Compression: top-k with momentum correction, masking, clipping and warm-up",
    .of_run = tw_warmup_of_run,
    DGC,
};

const tw_scheme_ops tw_scheme_dgc_bold = {
    .name = "dgc-bold",
    .summary = "dgc with one bit a value of a thousandth of everything: the smallest message, for long runs",
    .preset = tw_corrected_bold,
    DGC,
};

static const tw_preset adam[] = {{"beta2", "0.999"},        {"nesterov", "on"},       {"density", "0.04"},
                                 {"warmup_density", "0.3"}, {"warmup_steps", "6666"}, {"values", "lm2"},
                                 {"min_elements", "1"},     {"min_dims", "1"},        {NULL}};

const tw_scheme_ops tw_scheme_dgc_adam = {
    .name = "dgc-adam",
    .summary = "dgc for AdamW: each worker's own direction of Adam is compressed, and not its gradient",
    .preset = adam,
    .of_run = tw_warmup_of_adam,
    DGC,
};
