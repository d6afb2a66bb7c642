/* Finding a row by its name, or the name somebody meant. */
#include <string.h>

#include "value.h"
#include "words.h"

static int is_name(const char *known, const char *name, size_t length)
{
    return known && strlen(known) == length && memcmp(known, name, length) == 0;
}

size_t option_find(const option_page *page, const char *name, size_t length)
{
    for (size_t i = 0; i < page->count; i++) {
        const option_row *row = &page->rows[i];
        if (row->name && (is_name(row->name, name, length) || is_name(row->also, name, length))) return i;
    }
    return page->count;
}

const char *option_nearest(const option_page *page, const char *name, size_t length)
{
    const char *nearest = NULL;
    size_t least = words_far(length);
    for (size_t i = 0; i < page->count; i++) {
        const option_row *row = &page->rows[i];
        if (row->name && !row->file_only) words_compare(name, length, row->name, &nearest, &least);
    }
    return nearest;
}
