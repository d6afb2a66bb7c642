#include "names.h"

#include "error.h"
#include "memory.h"
#include "siphash.h"

#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>

static uint64_t key[2];
static _Thread_local uint64_t probes;

/* Where no random numbers are to be had, those do that the kernel gave the process at its start. */
static void draw_key(void)
{
    if (getrandom(key, sizeof key, GRND_NONBLOCK) == (ssize_t)sizeof key) return;
    const void *given = (const void *)(uintptr_t)getauxval(AT_RANDOM);
    if (given) memcpy(key, given, sizeof key);
}

static uint64_t names_hash(const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw_key);
    return tw_siphash(key, name, strlen(name));
}

uint64_t tw_names_probes(void)
{
    return probes;
}

/* The slot that holds `name`, or the free one where it belongs. At least one slot is free. */
static struct tw_name_slot *slot_of(const tw_names *names, const char *name)
{
    size_t mask = names->capacity - 1, at = (size_t)names_hash(name) & mask;
    for (;; at = (at + 1) & mask) {
        struct tw_name_slot *slot = &names->slots[at];
        probes++;
        if (!slot->name || strcmp(slot->name, name) == 0) return slot;
    }
}

size_t tw_names_find(const tw_names *names, const char *name)
{
    if (names->capacity == 0) return TW_NO_NAME;
    const struct tw_name_slot *slot = slot_of(names, name);
    return slot->name ? slot->position : TW_NO_NAME;
}

static tw_status names_grow(tw_names *names)
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
    if (2 * names->count >= names->capacity) TW_TRY(names_grow(names));
    *slot_of(names, name) = (struct tw_name_slot){name, position};
    names->count++;
    return TW_OK;
}

void tw_names_release(tw_names *names)
{
    tw_free(names->slots);
    *names = (tw_names){0};
}
