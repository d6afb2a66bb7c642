/* colliding_names.h - names that all have the same CRC-32C: what somebody sends who wants a table keyed by that hash to
 * search long. CRC is linear, so such names are the solutions of a system of equations over bits. */
#ifndef COLLIDING_NAMES_H
#define COLLIDING_NAMES_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

/* A name has a place for each bit of choice: 32 to meet the CRC, the others free. */
enum { COLLIDING_FREE = 16, COLLIDING_PLACES = 32 + COLLIDING_FREE, COLLIDING_MOST = 1 << COLLIDING_FREE };

/* Sets of places, a bit each: changing all places of one set from '`' to 'a' changes no CRC. */
typedef struct colliding_names {
    uint64_t sets[COLLIDING_FREE];
} colliding_names;

static inline void colliding_write(uint64_t places, char name[COLLIDING_PLACES + 1])
{
    for (int i = 0; i < COLLIDING_PLACES; i++) name[i] = (char)('`' + (places >> i & 1));
    name[COLLIDING_PLACES] = 0;
}

static inline uint32_t colliding_crc(uint64_t places)
{
    char name[COLLIDING_PLACES + 1];
    colliding_write(places, name);
    return tw_crc32c(0, name, COLLIDING_PLACES);
}

/* Gauss: each place is a row, of what it changes in the CRC and of the places that were added to it. */
static inline colliding_names colliding_find(void)
{
    colliding_names found = {{0}};
    uint32_t basis[32] = {0};
    uint64_t parts[32] = {0};
    int count = 0;
    for (int place = 0; place < COLLIDING_PLACES && count < COLLIDING_FREE; place++) {
        uint64_t set = (uint64_t)1 << place;
        uint32_t change = colliding_crc(set) ^ colliding_crc(0);
        for (int bit = 31; bit >= 0 && change; bit--) {
            if (!(change >> bit & 1)) continue;
            if (!basis[bit]) {
                basis[bit] = change;
                parts[bit] = set;
                set = 0;
                break;
            }
            change ^= basis[bit];
            set ^= parts[bit];
        }
        if (set) found.sets[count++] = set;
    }
    return found;
}

/* Number `index` of COLLIDING_MOST names, no two of them alike. */
static inline void colliding_name(const colliding_names *names, unsigned index, char name[COLLIDING_PLACES + 1])
{
    uint64_t places = 0;
    for (int i = 0; i < COLLIDING_FREE; i++)
        if (index >> i & 1) places ^= names->sets[i];
    colliding_write(places, name);
}

#endif
