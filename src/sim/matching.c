#include "matching.h"

#include "error.h"
#include "memory.h"

enum { FIRST_BUCKETS = 256 };

static tw_entry **bucket_of(const tw_matching *all, const tw_entry *entry)
{
    uint64_t key = ((uint64_t)entry->sender << 32 | (uint32_t)entry->receiver) + ((uint64_t)entry->channel << 16);
    key *= 0x9E3779B97F4A7C15u; /* Knuth's multiplicative hashing: the upper bits depend on all of the key */
    return &all->buckets[key >> 32 & (all->capacity - 1)];
}

static void matching_append(tw_matching *all, tw_entry *entry)
{
    tw_entry **link = bucket_of(all, entry);
    while (*link) link = &(*link)->next;
    entry->next = NULL;
    *link = entry;
}

static tw_status matching_grow(tw_matching *all)
{
    tw_matching old = *all;
    size_t capacity = old.capacity ? 2 * old.capacity : FIRST_BUCKETS;
    TW_TRY(tw_allocate(capacity, sizeof *all->buckets, &all->buckets));
    all->capacity = capacity;
    for (size_t b = 0; b < old.capacity; b++)
        for (tw_entry *entry = old.buckets[b], *next; entry; entry = next) {
            next = entry->next;
            matching_append(all, entry);
        }
    tw_free(old.buckets);
    return TW_OK;
}

static int are_partners(const tw_entry *a, const tw_entry *b)
{
    return a->sender == b->sender && a->receiver == b->receiver && a->channel == b->channel && a->is_send != b->is_send;
}

static void unlink_at(tw_matching *all, tw_entry **link)
{
    *link = (*link)->next;
    all->count--;
}

tw_status tw_matching_pair(tw_matching *all, tw_entry *entry, tw_entry **partner)
{
    if (all->count == all->capacity) TW_TRY(matching_grow(all));
    tw_entry **link = bucket_of(all, entry);
    while (*link && !are_partners(*link, entry)) link = &(*link)->next;
    *partner = *link;
    if (*partner) {
        unlink_at(all, link);
    } else {
        matching_append(all, entry);
        all->count++;
    }
    return TW_OK;
}

void tw_matching_remove(tw_matching *all, tw_entry *entry)
{
    tw_entry **link = bucket_of(all, entry);
    while (*link != entry) link = &(*link)->next;
    unlink_at(all, link);
}

void tw_matching_free(tw_matching *all)
{
    tw_free(all->buckets);
}
