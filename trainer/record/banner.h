/* banner.h - what a run is about to do, tensor by tensor, before it does it. */
#ifndef TRAINER_BANNER_H
#define TRAINER_BANNER_H

#include "worker.h"
#include <stdio.h>

void banner_print(FILE *stream, const worker *w);

#endif
