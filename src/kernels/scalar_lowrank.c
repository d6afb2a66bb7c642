/* The reference of lowrank.h. */
#include "lowrank.h"

const tw_lowrank_rows tw_lowrank_scalar = {0};
