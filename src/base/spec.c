#include "spec.h"

#include "error.h"
#include "memory.h"
#include "sized.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A piece of the spec, not terminated: `words` would have to be copied otherwise. */
typedef struct slice {
    const char *at;
    size_t length;
} slice;

enum { DELETE = 127 };

static locale_t plain; /* 0: there is none to be had */

static void create_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static locale_t plain_locale(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, create_plain);
    return plain;
}

double tw_decimal_read(const char *text, char **end)
{
    locale_t locale = plain_locale();
    return locale ? strtod_l(text, end, locale) : strtod(text, end);
}

size_t tw_decimal_text(double number, int digits, char *text, size_t capacity)
{
    locale_t locale = plain_locale(), before = locale ? uselocale(locale) : locale;
    int length = snprintf(text, capacity, "%.*g", digits, number);
    if (before) uselocale(before);
    return (size_t)length;
}

static int slice_is(slice text, const char *word)
{
    return strlen(word) == text.length && memcmp(text.at, word, text.length) == 0;
}

/* Up to the first `end`, which is skipped; *rest moves behind it, or becomes NULL. */
static slice next_slice(const char **rest, char end)
{
    const char *stop = strchr(*rest, end);
    slice text = {*rest, stop ? (size_t)(stop - *rest) : strlen(*rest)};
    *rest = stop ? stop + 1 : NULL;
    return text;
}

/* A line end out of a file, say, which nobody would see in a text about it. */
static tw_status check_characters(const char *spec)
{
    const char *at = spec;
    while (*at && (unsigned char)*at >= ' ' && *at != DELETE) at++;
    if (!*at) return TW_OK;
    return tw_fail(TW_ERROR_SPEC,
                   "the spec \"%.*s...\" has a control character, of code %u, at its place %zu: leave it out",
                   (int)(at - spec < 64 ? at - spec : 64), spec, (unsigned)(unsigned char)*at, (size_t)(at - spec) + 1);
}

tw_status tw_spec_name(const char *spec, char *name, size_t capacity)
{
    TW_TRY(tw_need(spec, "spec"));
    TW_TRY(check_characters(spec));
    slice text = next_slice(&spec, ':');
    if (text.length == 0) return tw_fail(TW_ERROR_SPEC, "the spec names no scheme; write \"scheme:option=value,...\"");
    if (text.length >= capacity) return tw_fail(TW_ERROR_SPEC, "\"%.40s...\" is not the name of a scheme", text.at);
    memcpy(name, text.at, text.length);
    name[text.length] = 0;
    return TW_OK;
}

static void *option_target(const tw_option_set *set, const tw_option *option)
{
    return (char *)set->target + option->offset;
}

/* The position of `word` in "one|two|three"; -1 if it is none of them. */
static int choice_position(const char *choices, slice word)
{
    for (int position = 0; choices; position++) {
        slice choice = next_slice(&choices, '|');
        if (choice.length == word.length && memcmp(choice.at, word.at, word.length) == 0) return position;
    }
    return -1;
}

static int is_within(const tw_option *option, double number)
{
    if (option->kind == TW_OPTION_INTEGER && number != floor(number)) return 0;
    return number >= option->least && number <= option->most;
}

/* A whole word as a number within the option's range. *vanishes: it would be one, if what is not 0 were not taken for 0
 * or for next to nothing. */
static int read_number(const tw_option *option, slice word, double *number, int *vanishes)
{
    char text[64], *end;
    *vanishes = 0;
    if (word.length == 0 || word.length >= sizeof text) return 0;
    memcpy(text, word.at, word.length);
    text[word.length] = 0;
    errno = 0;
    *number = tw_decimal_read(text, &end);
    int is_inexact = errno == ERANGE;
    if (*end || end == text || isspace((unsigned char)text[0]) || !isfinite(*number)) return 0;
    *vanishes = is_inexact && is_within(option, *number);
    return !is_inexact && is_within(option, *number);
}

static void describe_range(const tw_option *option, char *text, size_t capacity)
{
    switch (option->kind) {
    case TW_OPTION_REAL:
        snprintf(text, capacity, "a number from %g to %g", option->least, option->most);
        break;
    case TW_OPTION_INTEGER:
        snprintf(text, capacity, "a whole number from %.0f to %.0f", option->least, option->most);
        break;
    case TW_OPTION_SWITCH:
        snprintf(text, capacity, "on or off");
        break;
    case TW_OPTION_CHOICE:
        snprintf(text, capacity, "one of %s", option->choices);
        break;
    case TW_OPTION_TEXT:
        snprintf(text, capacity, "a text");
        break;
    }
}

static tw_status refuse_value(const tw_option *option, slice word)
{
    char range[256];
    describe_range(option, range, sizeof range);
    return tw_fail(TW_ERROR_SPEC, "%s=%.*s: %s must be %s", option->key, (int)word.length, word.at, option->key, range);
}

static tw_status refuse_number(const tw_option *option, slice word, int vanishes)
{
    if (!vanishes) return refuse_value(option, word);
    return tw_fail(
        TW_ERROR_SPEC,
        "%s=%.*s: no computer's number is as small, and it would be taken for 0: write 0, or a larger number",
        option->key, (int)word.length, word.at);
}

static tw_status set_text(char **target, slice word)
{
    char *copy;
    TW_TRY(tw_allocate(word.length + 1, 1, &copy));
    memcpy(copy, word.at, word.length);
    tw_free(*target);
    *target = copy;
    return TW_OK;
}

static tw_status set_option(const tw_option *option, void *target, slice word)
{
    double number;
    int position, vanishes;
    switch (option->kind) {
    case TW_OPTION_REAL:
        if (!read_number(option, word, &number, &vanishes)) return refuse_number(option, word, vanishes);
        *(double *)target = number;
        return TW_OK;
    case TW_OPTION_INTEGER:
        if (!read_number(option, word, &number, &vanishes)) return refuse_number(option, word, vanishes);
        *(int64_t *)target = (int64_t)number;
        return TW_OK;
    case TW_OPTION_SWITCH:
        if (!slice_is(word, "on") && !slice_is(word, "off")) return refuse_value(option, word);
        *(int *)target = slice_is(word, "on");
        return TW_OK;
    case TW_OPTION_CHOICE:
        position = choice_position(option->choices, word);
        if (position < 0) return refuse_value(option, word);
        *(int *)target = position;
        return TW_OK;
    case TW_OPTION_TEXT:
        return set_text(target, word);
    }
    return tw_fail(TW_ERROR_SPEC, "option %s is of no known kind", option->key);
}

/* What an option is where the spec does not say. */
static const char *fallback_of(const tw_option_set *set, const tw_option *option)
{
    for (const tw_preset *preset = set->preset; preset && preset->key; preset++)
        if (strcmp(preset->key, option->key) == 0) return preset->value;
    return option->fallback;
}

static tw_status set_defaults(const tw_option_set *sets, size_t count)
{
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < sets[s].count; i++) {
            const tw_option *option = &sets[s].options[i];
            const char *fallback = fallback_of(&sets[s], option);
            slice word = {fallback, strlen(fallback)};
            TW_TRY(set_option(option, option_target(&sets[s], option), word));
        }
    return TW_OK;
}

/* The keys of every set, for the error that says which there are. */
static void list_keys(const tw_option_set *sets, size_t count, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = 0;
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < sets[s].count && used < capacity; i++)
            used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? ", " : "", sets[s].options[i].key);
}

static const tw_option *find_option(const tw_option_set *sets, size_t count, slice key, const tw_option_set **set)
{
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < sets[s].count; i++)
            if (slice_is(key, sets[s].options[i].key)) {
                *set = &sets[s];
                return &sets[s].options[i];
            }
    return NULL;
}

/* 1 if `key` stands before `=` in one of these words. */
static int is_among(slice key, const char *rest)
{
    while (rest) {
        slice word = next_slice(&rest, ',');
        if (word.length > key.length && word.at[key.length] == '=' && memcmp(word.at, key.at, key.length) == 0)
            return 1;
    }
    return 0;
}

int tw_spec_says(const char *spec, const char *key)
{
    const char *colon = strchr(spec, ':');
    return is_among((slice){key, strlen(key)}, colon ? colon + 1 : NULL);
}

static tw_status set_words(const tw_option_set *sets, size_t count, const char *words)
{
    while (words) {
        slice word = next_slice(&words, ',');
        const char *equals = memchr(word.at, '=', word.length);
        if (!equals)
            return tw_fail(TW_ERROR_SPEC, "\"%.*s\" is not of the form option=value", (int)word.length, word.at);
        slice key = {word.at, (size_t)(equals - word.at)};
        slice value = {equals + 1, word.length - key.length - 1};
        const tw_option_set *set = NULL;
        const tw_option *option = find_option(sets, count, key, &set);
        if (!option) {
            char keys[1024];
            list_keys(sets, count, keys, sizeof keys);
            return tw_fail(TW_ERROR_SPEC, "no option \"%.*s\"; there are: %s", (int)key.length, key.at, keys);
        }
        if (is_among(key, words)) return tw_fail(TW_ERROR_SPEC, "option %s is given twice", option->key);
        TW_TRY(set_option(option, option_target(set, option), value));
    }
    return TW_OK;
}

tw_status tw_spec_parse(const char *spec, const tw_option_set *sets, size_t count)
{
    const char *colon = strchr(spec, ':');
    tw_status status = set_defaults(sets, count);
    if (status == TW_OK) status = set_words(sets, count, colon ? colon + 1 : NULL);
    if (status != TW_OK) tw_spec_release(sets, count);
    return status;
}

tw_status tw_options_unique(const tw_option_set *sets, size_t count)
{
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < sets[s].count; i++) {
            const char *key = sets[s].options[i].key;
            const tw_option_set *unused;
            if (find_option(sets, count, (slice){key, strlen(key)}, &unused) != &sets[s].options[i])
                return tw_fail(TW_ERROR_ARGUMENT, "there are two options %s", key);
        }
    return TW_OK;
}

void tw_spec_release(const tw_option_set *sets, size_t count)
{
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < sets[s].count; i++) {
            if (sets[s].options[i].kind != TW_OPTION_TEXT) continue;
            char **target = option_target(&sets[s], &sets[s].options[i]);
            tw_free(*target);
            *target = NULL;
        }
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

tw_named tw_list_by_name(const tw_list *list, const char *name)
{
    tw_named entry = list->at(0);
    for (size_t i = 1; entry.ops && strcmp(entry.name, name) != 0; i++) entry = list->at(i);
    return entry;
}

tw_status tw_list_find(const tw_list *list, const char *spec, tw_named *found)
{
    char name[64], names[512] = "";
    TW_TRY(tw_spec_name(spec, name, sizeof name));
    *found = tw_list_by_name(list, name);
    if (found->ops) return TW_OK;
    for (size_t i = 0, used = 0; list->at(i).ops && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", list->at(i).name);
    return tw_fail(TW_ERROR_SPEC, "no %s \"%s\"; there are: %s; %s", list->one, name, names, list->others);
}

tw_status tw_list_parse(const tw_list *list, const void *ops, const char *name, const char *spec, void *target)
{
    tw_option_set sets[TW_OPTION_SETS];
    size_t count = list->options(ops, target, sets);
    tw_status status = tw_spec_parse(spec, sets, count);
    return status == TW_ERROR_SPEC ? tw_fail_in(status, name) : status;
}

void tw_list_release(const tw_list *list, const void *ops, void *target)
{
    tw_option_set sets[TW_OPTION_SETS];
    size_t count = list->options(ops, target, sets);
    tw_spec_release(sets, count);
}

/* ---- the public view --------------------------------------------------------------------------------------------- */

size_t tw_list_count(const tw_list *list)
{
    size_t count = 0;
    while (list->at(count).ops) count++;
    return count;
}

int tw_list_index(const tw_list *list, const char *spec, size_t *index)
{
    if (!spec || !index) return 0;
    slice name = next_slice(&spec, ':');
    for (size_t i = 0; list->at(i).ops; i++) {
        if (!slice_is(name, list->at(i).name)) continue;
        *index = i;
        return 1;
    }
    return 0;
}

/* How many sets of options the entry has; none past the end. */
static size_t sets_of(const tw_list *list, tw_named entry, tw_option_set sets[TW_OPTION_SETS])
{
    return entry.ops ? list->options(entry.ops, NULL, sets) : 0;
}

size_t tw_list_option_count(const tw_list *list, size_t index)
{
    tw_option_set sets[TW_OPTION_SETS];
    size_t options = 0, count = sets_of(list, list->at(index), sets);
    for (size_t s = 0; s < count; s++) options += sets[s].count;
    return options;
}

static tw_status spec_tell(const tw_option_set *set, const tw_option *option, int common, tw_option_info *info)
{
    const tw_option_info told = {.name = option->key,
                                 .kind = option->kind,
                                 .common = common,
                                 .fallback = fallback_of(set, option),
                                 .least = option->least,
                                 .most = option->most,
                                 .choices = option->choices,
                                 .help = option->help};
    return tw_copy_sized(info, &told, sizeof told, "tw_option_info");
}

tw_status tw_list_option(const tw_list *list, size_t index, size_t number, tw_option_info *option)
{
    tw_option_set sets[TW_OPTION_SETS];
    size_t before = 0, count = sets_of(list, list->at(index), sets);
    if (count == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "there are %zu %s and no number %zu", tw_list_count(list), list->many, index);
    TW_TRY(tw_need(option, "option"));
    for (size_t s = 0; s < count; before += sets[s].count, s++)
        if (number - before < sets[s].count)
            return spec_tell(&sets[s], &sets[s].options[number - before], s > 0, option);
    return tw_fail(TW_ERROR_ARGUMENT, "the scheme has %zu options; there is no number %zu", before, number);
}

static size_t spec_describe(const tw_option_set *set, const tw_option *option, char *text, size_t capacity)
{
    char range[256];
    const char *fallback = fallback_of(set, option);
    describe_range(option, range, sizeof range);
    return (size_t)snprintf(text, capacity, "  %-16s %-8s %s (%s)\n", option->key, *fallback ? fallback : "\"\"",
                            option->help, range);
}

size_t tw_list_help(const tw_list *list, size_t index, char *text, size_t capacity)
{
    char nowhere;
    tw_named entry = list->at(index);
    tw_option_set sets[TW_OPTION_SETS];
    size_t count = sets_of(list, entry, sets), used = 0;
    if (!text) {
        text = &nowhere;
        capacity = 0;
    }
    if (entry.ops)
        used = (size_t)snprintf(text, capacity, "%s - %s%s\n", entry.name, entry.summary,
                                entry.settled ? "" : " (experimental)");
    else if (capacity > 0)
        *text = 0;
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < sets[s].count; i++)
            used += spec_describe(&sets[s], &sets[s].options[i], used < capacity ? text + used : NULL,
                                  used < capacity ? capacity - used : 0);
    return used;
}
