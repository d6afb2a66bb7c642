#include "scheme_words.h"
#include "error.h"
#include "exchange.h"
#include <string.h>

/* The way to which scheme `index` of all belongs; *scheme: which of its schemes that is. */
static const scheme_list *find_list(size_t index, size_t *scheme)
{
    *scheme = index;
    for (size_t way = 0; exchange_at(way); way++) {
        const scheme_list *list = &exchange_at(way)->schemes;
        if (*scheme < list->count()) return list;
        *scheme -= list->count();
    }
    return NULL;
}

const char *scheme_word(size_t index)
{
    size_t scheme;
    const scheme_list *list = find_list(index, &scheme);
    return list ? list->name(scheme) : NULL;
}

const char *scheme_word_meaning(size_t index)
{
    size_t scheme;
    const scheme_list *list = find_list(index, &scheme);
    return list ? list->summary(scheme) : NULL;
}

static tw_status check_key(const scheme_list *list, size_t scheme, const char *key, size_t length)
{
    const char *nearest = NULL, *name = list->name(scheme);
    size_t least = words_far(length);
    for (size_t i = 0; i < list->option_count(scheme); i++) {
        tw_option_info option = {.struct_size = sizeof option};
        TW_TRY(list->option(scheme, i, &option));
        if (strlen(option.name) == length && memcmp(option.name, key, length) == 0) return TW_OK;
        words_compare(key, length, option.name, &nearest, &least);
    }
    if (!nearest) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "%s has no option \"%.*s\"; did you mean %s? thinwire schemes %s lists its options", name,
                   (int)length, key, nearest, name);
}

tw_status scheme_check_spelling(const char *spec)
{
    size_t scheme;
    const exchange *way = exchange_find(spec, &scheme);
    const char *at = strchr(spec, ':');
    while (way && at && *at) {
        at++;
        size_t key = strcspn(at, "=,");
        if (at[key] == '=') TW_TRY(check_key(&way->schemes, scheme, at, key));
        at += strcspn(at, ",");
    }
    return TW_OK;
}
