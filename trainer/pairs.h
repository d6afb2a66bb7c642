/* pairs.h - lists of "key=value" between commas. Here and not in a layer, because several layers read them. */
#ifndef TRAINER_PAIRS_H
#define TRAINER_PAIRS_H

#include <stddef.h>
#include <string.h>

/* Both are parts of the list. */
typedef struct pair {
    const char *key, *value; /* value: NULL where there is no "=" */
    size_t key_length, value_length;
} pair;

/* Takes the next entry off a list; 0 at its end. */
static inline int pair_next(const char **list, pair *next)
{
    const char *word = *list;
    size_t length = strcspn(word, ",");
    const char *equals = memchr(word, '=', length);
    if (!*word) return 0;
    *next = (pair){.key = word, .key_length = equals ? (size_t)(equals - word) : length};
    if (equals) next->value = equals + 1;
    if (equals) next->value_length = length - next->key_length - 1;
    *list = word + length + (word[length] == ',');
    return 1;
}

static inline int pair_has_key(const pair *p, const char *key)
{
    return strlen(key) == p->key_length && memcmp(key, p->key, p->key_length) == 0;
}

/* Whether an earlier entry of the list has the key of this one. */
static inline int pair_is_again(const char *list, const pair *p)
{
    for (pair before; pair_next(&list, &before) && before.key != p->key;)
        if (before.key_length == p->key_length && memcmp(before.key, p->key, p->key_length) == 0) return 1;
    return 0;
}

#endif
