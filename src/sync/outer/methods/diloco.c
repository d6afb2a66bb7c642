/* diloco - what the workers' weights moved by on the mean is the gradient of an outer optimiser: SGD with Nesterov's
 * momentum (Douillard et al. 2023, arXiv 2311.08105). With one worker and no momentum it is Lookahead (Zhang et al.
 * 2019). */
#include "method.h"

const tw_outer_method tw_outer_diloco = {
    .name = "diloco",
    .summary = "local steps; what they moved the mean by is an outer optimiser's gradient",
    .takes_momentum = 1,
};
