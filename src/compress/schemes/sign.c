/* sign - EF-signSGD: signs and one magnitude, with error feedback (Karimireddy, Rebjock, Stich, Jaggi; ICML 2019,
 * arXiv 1901.09847).
 *
 * Per tensor of n elements: p = e + g; send s = |p|_1 / n and the signs of p; e = p - s sign(p). An element that is 0
 * counts as positive. Without the feedback signs may lead uphill; it is not an option here. The paper feeds back
 * learning_rate * gradient; here the gradient itself, so that the rate belongs to the optimiser. */
#include "signs.h"

static const tw_option options[] = {TW_OPTION_EXCHANGE};

static tw_status create(tw_scheme *scheme)
{
    return tw_signs_create(scheme, 1);
}

const tw_scheme_ops tw_scheme_sign = {
    .name = "sign",
    .summary = "EF-signSGD: one bit an element and the mean magnitude of each tensor, with error feedback",
    .floor_bytes = 12,
    .struct_size = sizeof(tw_signs),
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .create = create,
    .next = tw_quantised_next,
    .revert = tw_signs_revert,
    .settle = tw_signs_settle,
    .walk = tw_quantised_walk,
    .plan = tw_quantised_plan,
    .destroy = tw_signs_destroy,
};
