#include "names.h"

#include "error.h"
#include "memory.h"

#include <string.h>

/* The slot that holds `name`, or the free one where it belongs. At least one slot is free. */
static struct tw_name_slot *slot_of(const tw_names *names, const char *name)
{
    size_t at = tw_crc32c(0, name, strlen(name)) & (names->capacity - 1);
    while (names->slots[at].name && strcmp(names->slots[at].name, name) != 0) at = (at + 1) & (names->capacity - 1);
    return &names->slots[at];
}

size_t tw_names_find(const tw_names *names, const char *name)
{
    if (names->capacity == 0) return TW_NO_NAME;
    const struct tw_name_slot *slot = slot_of(names, name);
    return slot->name ? slot->position : TW_NO_NAME;
}

static tw_status grow(tw_names *names)
{
    tw_names larger = {NULL, names->capacity ? 2 * names->capacity : 16, names->count};
    TW_TRY(tw_allocate(larger.capacity, sizeof *larger.slots, &larger.slots));
    for (size_t i = 0; i < names->capacity; i++)
        if (names->slots[i].name) *slot_of(&larger, names->slots[i].name) = names->slots[i];
    tw_names_release(names);
    *names = larger;
    return TW_OK;
}

tw_status tw_names_add(tw_names *names, const char *name, size_t position)
{
    if (2 * names->count >= names->capacity) TW_TRY(grow(names));
    *slot_of(names, name) = (struct tw_name_slot){name, position};
    names->count++;
    return TW_OK;
}

void tw_names_release(tw_names *names)
{
    tw_free(names->slots);
    *names = (tw_names){0};
}
