/* hold_out.h - choosing what is held out of the training images. Private to this folder. */
#ifndef TRAINER_DATA_HOLD_OUT_H
#define TRAINER_DATA_HOLD_OUT_H

#include "dataset.h"

/* How many of a class's `count` images a share is: at least one of two, never all. */
size_t hold_out_of(size_t count, double share);
/* The order in which a class's images are held out: the first ones are. */
void hold_out_order(uint32_t *order, size_t count, size_t label);

/* Moves a share of each class from `train`, which is in memory, to `valid`. */
tw_status hold_out(dataset *data, double share);

#endif
