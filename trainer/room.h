/* room.h - arrays that grow. Here and not in a layer, because several need it. */
#ifndef TRAINER_ROOM_H
#define TRAINER_ROOM_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Sees to it that the array whose pointer is at `array`, with room for *room things of `size` bytes, has room for
 * `wanted`: by doubling, so that things may be added one at a time. False: no memory, and nothing has changed. */
static inline bool room_make(void *array, size_t *room, size_t wanted, size_t size)
{
    void *before, *things;
    if (wanted <= *room) return true;
    memcpy(&before, array, sizeof before);
    things = realloc(before, 2 * wanted * size);
    if (!things) return false;
    memcpy(array, &things, sizeof things);
    *room = 2 * wanted;
    return true; // cppcheck-suppress memleak
}

#endif
