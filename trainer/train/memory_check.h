/* memory_check.h - whether a run's memory is there, before its data are read. */
#ifndef TRAINER_MEMORY_CHECK_H
#define TRAINER_MEMORY_CHECK_H

#include "settings.h"

/* TW_ERROR_MEMORY, with both numbers, where so many workers of this process, and as many of each other rank that a
 * launcher has started on this machine, take more than there is. Counted is the least that they take. TW_OK where the
 * task cannot tell, or --memory-budget keeps the network in a file. */
tw_status memory_check(const train_settings *settings, int workers);

#endif
