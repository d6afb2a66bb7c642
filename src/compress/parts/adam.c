#include "adam.h"

/* libm's pow differs between processors in its last bits. */
static double power(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
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
