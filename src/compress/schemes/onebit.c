/* onebit - 1-bit SGD: signs and two reconstruction values, with error feedback (Seide, Fu, Droppo, Li, Yu; Interspeech
 * 2014).
 *
 * Per tensor: p = e + g; send the signs of p, the mean of its negative elements and the mean of the others, which are
 * what the receiver puts for them; e = p - sent. These two values make the squared error the least that one bit with a
 * threshold at 0 allows. The paper has two values a column of each matrix; here a tensor has two. */
#include "signs.h"

static const tw_option options[] = {TW_OPTION_EXCHANGE};

static tw_status create(tw_scheme *scheme)
{
    return tw_signs_create(scheme, 2);
}

const tw_scheme_ops tw_scheme_onebit = {
    .name = "onebit",
    .summary = "1-bit SGD: one bit an element and two mean values of each tensor, with error feedback",
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
