/* From the tokens met in a text to the vocabulary of a model. */
#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

typedef struct entry {
    const char *token;
    uint64_t often;
} entry;

static int by_frequency(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->often != b->often) return a->often < b->often ? 1 : -1;
    return strcmp(a->token, b->token);
}

/* Leaves `most` entries of more, the rarest and <unk> itself become one; returns how many there are. */
static size_t merge_rarest(entry *entries, size_t count, size_t most)
{
    entry unknown = {.token = TOKEN_UNKNOWN};
    size_t kept = 0;
    if (most == 0 || count <= most) return count;
    for (size_t i = 0; i < count; i++) {
        if (kept < most - 1 && strcmp(entries[i].token, TOKEN_UNKNOWN) != 0)
            entries[kept++] = entries[i];
        else
            unknown.often += entries[i].often;
    }
    entries[kept++] = unknown;
    qsort(entries, kept, sizeof *entries, by_frequency);
    return kept;
}

tw_status vocabulary_rank(const vocabulary *met, const uint64_t *often, size_t most, vocabulary **out)
{
    size_t count = vocabulary_count(met);
    vocabulary *v = NULL;
    entry *entries = malloc((count + 1) * sizeof *entries);
    if (!entries) return tw_fail(TW_ERROR_MEMORY, "no memory to sort %zu tokens", count);
    for (uint32_t id = 0; id < count; id++) entries[id] = (entry){vocabulary_token(met, id), often[id]};
    qsort(entries, count, sizeof *entries, by_frequency);
    size_t kept = merge_rarest(entries, count, most);
    tw_status status = vocabulary_create(vocabulary_unit(met), &v);
    for (size_t i = 0; status == TW_OK && i < kept; i++)
        status = vocabulary_add(v, entries[i].token, strlen(entries[i].token), &(uint32_t){0});
    free(entries);
    if (status == TW_OK)
        *out = v;
    else
        vocabulary_destroy(v);
    return status;
}
