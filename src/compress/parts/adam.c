#include "adam.h"

tw_adam_step tw_adam_begin(const tw_adam *adam, int nesterov, uint64_t before, int shares)
{
    double steps = (double)before + 1;
    return (tw_adam_step){.beta1 = (float)adam->beta1,
                          .fresh = (float)(1 - adam->beta1),
                          .beta2 = (float)adam->beta2,
                          .fresh_square = (float)(1 - adam->beta2),
                          .correction = (float)(1 / (1 - pow(adam->beta1, steps))),
                          .correct_root = (float)(sqrt(shares) / sqrt(1 - pow(adam->beta2, steps))),
                          .epsilon = (float)adam->epsilon,
                          .nesterov = nesterov};
}
