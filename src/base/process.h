/* process.h - whether this is still the process in which an object was made. The child of a fork has its memory and
 * none of its threads. */
#ifndef TW_BASE_PROCESS_H
#define TW_BASE_PROCESS_H

#include <thinwire/thinwire.h>

/* Writes down what tells this process from its children: for an object to keep. */
tw_status tw_process_note(unsigned *made);
/* 1 in a child that was forked since. */
int tw_process_is_child(unsigned made);
/* TW_ERROR_ORDER in such a child. */
tw_status tw_process_check(unsigned made);

#endif
