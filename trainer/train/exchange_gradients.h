/* exchange_gradients.h - what a worker keeps whose gradients go through a reducer; tests look at it, too. */
#ifndef TRAINER_EXCHANGE_GRADIENTS_H
#define TRAINER_EXCHANGE_GRADIENTS_H

#include "worker.h"

typedef struct gradients_way {
    tw_reducer *reducer;
} gradients_way;

static inline tw_reducer *reducer_of(const worker *w)
{
    return ((const gradients_way *)w->way)->reducer;
}

#endif
