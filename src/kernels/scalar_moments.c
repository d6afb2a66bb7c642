/* The reference of moments.h. */
#include "moments.h"

const tw_moments_rows tw_moments_scalar = {0};
