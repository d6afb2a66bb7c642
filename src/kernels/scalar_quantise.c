/* The reference of quantise.h. */
#include "quantise.h"

const tw_quantise_rows tw_quantise_scalar = {0};
