/* Finding a row by its name, or the name somebody meant. */
#include <string.h>

#include "value.h"

size_t option_find(const option_page *page, const char *name, size_t length)
{
    for (size_t i = 0; i < page->count; i++) {
        const char *known = page->rows[i].name;
        if (known && strlen(known) == length && memcmp(known, name, length) == 0) return i;
    }
    return page->count;
}

enum { NAME_MOST = 48 }; /* longer words are not misspellings of a name */

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters to insert, delete or replace (Levenshtein), row by row of the table of prefixes. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t row[NAME_MOST + 1];
    for (size_t j = 0; j <= b_length; j++) row[j] = j;
    for (size_t i = 0; i < a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_length; j++) {
            size_t replaced = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = least_of(replaced, least_of(row[j], diagonal) + 1);
        }
    }
    return row[b_length];
}

const char *option_nearest(const option_page *page, const char *name, size_t length)
{
    const char *nearest = NULL;
    if (length > NAME_MOST) return NULL;
    size_t least = 3 + length / 4; /* as many changes make another word */
    for (size_t i = 0; i < page->count; i++) {
        const char *known = page->rows[i].name;
        if (!known) continue;
        size_t distance = edit_distance(known, strlen(known), name, length);
        /* As many changes as there are letters keep none of them. */
        if (distance >= least || distance >= strlen(known)) continue;
        nearest = known;
        least = distance;
    }
    return nearest;
}
