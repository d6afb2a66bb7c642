/* pulseloco - diloco, of whose pseudo-gradients that is sent which would change the shared weights as bf16 has them;
 * the rest is added to what the next steps do (PULSELoCo; 2026, arXiv 2602.03839, which has 10 steps to a round). The
 * smaller the inner learning rate is beside the weights, the less is sent: as in reinforcement learning and
 * fine-tuning. */
#include "method.h"

static const tw_preset presets[] = {{"every", "10"}, {"exchange", "pulse"}, {NULL, NULL}};

const tw_outer_method tw_outer_pulseloco = {
    .name = "pulseloco",
    .summary = "diloco; of what the steps did, that is sent which bf16 weights would notice",
    .takes_momentum = 1,
    .presets = presets,
};
