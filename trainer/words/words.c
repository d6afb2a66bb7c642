#include "words.h"

#include "error.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_MOST = 64, DELETE = 127 };

tw_status words_check_printed(tw_status status, const char *what, const char *given)
{
    size_t at = 0;
    while (given[at] && (unsigned char)given[at] >= ' ' && given[at] != DELETE) at++;
    if (!given[at]) return TW_OK;
    return tw_fail(status, "%s \"%.*s...\" has a control character, of code %u, at its place %zu: leave it out", what,
                   (int)(at < SHOWN_MOST ? at : SHOWN_MOST), given, (unsigned)(unsigned char)given[at], at + 1);
}

enum { WORD_MOST = 48 }; /* longer words are not misspellings of a name */

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int is_other_letter(char a, char b)
{
    return tolower((unsigned char)a) != tolower((unsigned char)b);
}

/* Letters to insert, delete or replace (Levenshtein), row by row of the table of prefixes. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t row[WORD_MOST + 1];
    for (size_t j = 0; j <= b_length; j++) row[j] = j;
    for (size_t i = 0; i < a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_length; j++) {
            size_t replaced = diagonal + (size_t)is_other_letter(a[i], b[j]);
            diagonal = row[j + 1];
            row[j + 1] = least_of(replaced, least_of(row[j], diagonal) + 1);
        }
    }
    return row[b_length];
}

/* As many changes make another word. */
size_t words_far(size_t length)
{
    return length > WORD_MOST ? 0 : 2 + length / 3;
}

void words_compare(const char *given, size_t length, const char *known, const char **nearest, size_t *least)
{
    if (*least == 0) return;
    size_t distance = edit_distance(known, strlen(known), given, length);
    /* As many changes as there are letters keep none of them. */
    if (distance >= *least || distance >= strlen(known)) return;
    *nearest = known;
    *least = distance;
}

const char *words_nearest(const char *given, size_t length, word_at at)
{
    const char *nearest = NULL;
    size_t least = words_far(length);
    for (size_t i = 0; at(i); i++) words_compare(given, length, at(i), &nearest, &least);
    return nearest;
}

tw_status words_refuse(const char *what, const char *given, size_t length, word_at at)
{
    TW_TRY(words_check_printed(TW_ERROR_ARGUMENT, what, given));
    char names[768] = "";
    const char *nearest = words_nearest(given, length, at);
    for (size_t i = 0, used = 0; at(i) && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", at(i));
    if (nearest)
        return tw_fail(TW_ERROR_ARGUMENT, "there is no %s \"%.*s\"; did you mean %s? There are %s", what, (int)length,
                       given, nearest, names);
    return tw_fail(TW_ERROR_ARGUMENT, "there is no %s \"%.*s\"; there are %s", what, (int)length, given, names);
}
