#include "expect_ratio.h"
#include "error.h"
#include <string.h>

static tw_status expect_ratio_refuse_unknown(const train_settings *s)
{
    return tw_fail(
        TW_ERROR_ARGUMENT,
        "--expect-ratio %g: every step was in the warm-up of --sync %s or skipped, so no ratio was reached; take more "
        "--epochs or --steps, or a shorter warm-up",
        s->expect_ratio, s->sync);
}

/* A compressed run is often held back by what it does not compress; the share tells. */
static tw_status refuse_missed(const train_settings *s, const double *v, double reached)
{
    double exact = 100 * (1 - v[TOTAL_COMPRESSED_PACKET] / v[TOTAL_MESSAGE_PACKET]);
    return tw_fail(
        TW_ERROR_ARGUMENT,
        "--expect-ratio %g: --sync %s reached a message ratio of %.4g after its warm-up (%.0f %% of the bytes "
        "are of tensors that are not compressed); choose options that send less, which 'thinwire schemes "
        "%.*s' lists, or expect less",
        s->expect_ratio, s->sync, reached, exact, (int)strcspn(s->sync, ":"), s->sync);
}

tw_status expect_ratio_check(worker *w, const totals *mean)
{
    const train_settings *s = &w->settings;
    const double *v = mean->values;
    double packet = v[TOTAL_MESSAGE_PACKET], reached = packet > 0 ? v[TOTAL_MESSAGE_FP32] / packet : 0;
    if (s->expect_ratio == 0 || reached >= s->expect_ratio) return TW_OK;
    w->agreed = 1;
    return packet > 0 ? refuse_missed(s, v, reached) : expect_ratio_refuse_unknown(s);
}
