/* init_from.h - a new run that begins with the weights of an earlier one: --init-from. */
#ifndef TRAINER_INIT_FROM_H
#define TRAINER_INIT_FROM_H

#include "worker.h"

/* Before the data are read: what the checkpoint says of the network becomes the default of the options that shape it,
 * where the task takes its sizes. The same refusals as below, as far as they can be known. */
tw_status init_from_shape(options *set, const train_settings *settings);

/* Takes weights and running statistics out of settings.init_from, which a learner with a base needs; nothing else of
 * that run. Where the last layer has another shape, as with other classes, it stays as it was made, and one line
 * says so. Whatever else differs is TW_ERROR_STATE with the tensor's name. A collective; rank 0 alone reads, and
 * whoever begins with its parameters afterwards has them. */
tw_status init_from_take(worker *w);

#endif
