/* charge.h - what computing costs in a world, whose clock does not see it. */
#ifndef TW_CHARGE_H
#define TW_CHARGE_H

#include <stdint.h>

/* Working on so many elements, or on so many bytes that others sent, takes time: in a world as much of it passes as the
 * world's options say. Elsewhere this does nothing. */
void tw_world_charge(uint64_t elements, uint64_t bytes);

#endif
