/* engine_room.h - whether there is address space left for oneDNN to work in.
 *
 * oneDNN does not survive a lack of it: where its allocation failed it writes the code it generates all the same, and
 * it throws where nobody catches. So before each call that may allocate, the room it may want is asked for. */
#ifndef NN_ENGINE_ROOM_H
#define NN_ENGINE_ROOM_H

#include <thinwire/thinwire.h>

/* TW_ERROR_MEMORY where a limit of the process (ulimit -v, ulimit -d) leaves too little. Where there is no limit this
 * is a comparison: then no allocation fails, and what a lack of memory ends is the system's choice. */
tw_status engine_room(void);

/* Counts an engine that is made, 1, or destroyed, -1: each has a thread that may be in oneDNN while others are. */
void engine_room_count(int engines);

#endif
