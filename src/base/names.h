/* names.h - finds the position of a name in a list, in one probe or two however long the list is and whoever chose the
 * names: the hash has a key that is drawn anew in every process. Nothing depends on the order of the table's slots. */
#ifndef TW_BASE_NAMES_H
#define TW_BASE_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

#define TW_NO_NAME ((size_t)-1)

/* An open-addressing hash table; all zeros is an empty one. */
typedef struct tw_names {
    struct tw_name_slot {
        const char *name; /* borrowed; NULL: free */
        size_t position;
    } * slots;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
} tw_names;

/* The position `name` was added with, or TW_NO_NAME. */
size_t tw_names_find(const tw_names *names, const char *name);
/* Adds a name that is not there yet; it must live as long as the table. */
tw_status tw_names_add(tw_names *names, const char *name, size_t position);
void tw_names_release(tw_names *names);

/* For tests: the slots that this thread has looked at so far, in all tables. */
uint64_t tw_names_probes(void);

#endif
