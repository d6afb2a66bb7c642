/* local - local SGD, or local AdamW: after so many steps of their own the workers' weights become their mean (McMahan
 * et al. 2017; Stich, ICLR 2019). */
#include "method.h"

const tw_outer_method tw_outer_local = {
    .name = "local",
    .summary = "local steps; then the weights become the workers' mean",
};
