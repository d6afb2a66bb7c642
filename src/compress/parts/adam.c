#include "adam.h"

#include "error.h"

/* libm's pow differs between processors in its last bits. */
static double power(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

tw_status tw_adam_check(double beta1, double beta2)
{
    if (beta2 == 0 || beta1 > 0) return TW_OK;
    return tw_fail(TW_ERROR_SPEC, "beta2=%g with momentum=0, which is Adam's beta1 and has to be above 0", beta2);
}

tw_adam_step tw_adam_begin(const tw_adam *adam, int nesterov, uint64_t before, int shares)
{
    return (tw_adam_step){.beta1 = (float)adam->beta1,
                          .fresh = (float)(1 - adam->beta1),
                          .beta2 = (float)adam->beta2,
                          .fresh_square = (float)(1 - adam->beta2),
                          .correction = (float)(1 / (1 - power(adam->beta1, before + 1))),
                          .correct_root = (float)(sqrt(shares) / sqrt(1 - power(adam->beta2, before + 1))),
                          .epsilon = (float)adam->epsilon,
                          .nesterov = nesterov};
}

uint64_t tw_adam_refreshes(uint64_t kappa, uint64_t steps)
{
    uint64_t count = 0, interval = 1;
    for (; kappa && steps / interval >= kappa && interval <= UINT64_MAX / 2; interval *= 2) {
        count += kappa;
        steps -= kappa * interval;
    }
    return kappa ? count + steps / interval : 0;
}
