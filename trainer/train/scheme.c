#include "scheme.h"
#include "error.h"
#include "exchange.h"
#include "pairs.h"
#include "scheme_text.h"
#include "scheme_words.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The scheme for gradients that a spec, "dgc:density=0.001", begins with; tw_schemes_count() when there is none of that
 * name. */
static size_t scheme_find(const char *spec)
{
    size_t scheme;
    const exchange *way = exchange_find(spec, &scheme);
    return way && way->schemes.count == tw_schemes_count ? scheme : tw_schemes_count();
}

/* ---- the options ------------------------------------------------------------------------------------------------- */

/* Where a spec's scheme has its options. */
typedef struct scheme_options {
    size_t index, count;
    tw_status (*tell)(size_t index, size_t number, tw_option_info *option);
} scheme_options;

static scheme_options options_of(const char *spec)
{
    size_t scheme;
    const exchange *way = exchange_find(spec, &scheme);
    return way ? (scheme_options){scheme, way->schemes.option_count(scheme), way->schemes.option} : (scheme_options){0};
}

static tw_option_info option_at(const scheme_options *all, size_t number)
{
    tw_option_info option = {.struct_size = sizeof option};
    if (all->tell(all->index, number, &option) != TW_OK) option.name = "";
    return option;
}

/* Of the options that say which tensors are compressed every such scheme has this one. */
int scheme_is_exact(const char *spec)
{
    scheme_options all = options_of(spec);
    for (size_t i = 0; i < all.count; i++)
        if (strcmp(option_at(&all, i).name, "leftovers") == 0) return 0;
    return all.count > 0 && scheme_find(spec) < tw_schemes_count();
}

/* What an option of the scheme is, given or not, and how long that is; NULL where it has none of that name. */
static const char *value_of(const char *spec, const char *name, size_t *length)
{
    scheme_options all = options_of(spec);
    for (size_t i = 0; i < all.count; i++) {
        tw_option_info option = option_at(&all, i);
        if (strcmp(option.name, name) != 0) continue;
        const char *value = scheme_text_value(spec, name, length);
        if (!value) *length = strlen(option.fallback);
        return value ? value : option.fallback;
    }
    return NULL;
}

double scheme_number(const char *spec, const char *name)
{
    size_t length;
    const char *value = value_of(spec, name, &length);
    return value ? strtod(value, NULL) : NAN;
}

int scheme_adapts(const char *spec)
{
    return scheme_number(spec, "beta2") > 0;
}

static int value_is(const char *spec, const char *name, const char *text)
{
    size_t length;
    const char *value = value_of(spec, name, &length);
    return value && length == strlen(text) && strncmp(value, text, length) == 0;
}

int scheme_gives_signs(const char *spec)
{
    return value_is(spec, "map", "sign");
}

int scheme_sends_a_part(const char *spec)
{
    static const char *const shares[] = {"density", "rate"}, *const others[] = {"tau", "bin", "k"};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        double share = scheme_number(spec, shares[i]);
        if (!isnan(share) && share != 1) return 1;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!isnan(scheme_number(spec, others[i]))) return 1;
    return 0;
}

char *scheme_for_run(const char *spec, uint64_t steps)
{
    size_t size = tw_spec_for_run(spec, steps, NULL, 0) + 1;
    char *text = malloc(size);
    if (text) tw_spec_for_run(spec, steps, text, size);
    return text;
}

/* Numbers in the one form that tells them from every other. */
static void write_value(FILE *stream, tw_option_kind kind, const char *value, size_t length)
{
    char *end, text[64];
    snprintf(text, sizeof text, "%.*s", (int)length, value);
    double number = strtod(text, &end);
    int is_number = (kind == TW_OPTION_REAL || kind == TW_OPTION_INTEGER) && length > 0 && !*end;
    if (is_number)
        fprintf(stream, "%.17g", number);
    else
        fprintf(stream, "%.*s", (int)length, value);
}

static int has_option(const scheme_options *all, const pair *key)
{
    for (size_t i = 0; i < all->count; i++)
        if (pair_has_key(key, option_at(all, i).name)) return 1;
    return 0;
}

/* What the scheme hands on to another. */
static void write_others(FILE *stream, const char *spec, const scheme_options *all)
{
    const char *list = strchr(spec, ':');
    if (!list) return;
    list++;
    for (pair next; pair_next(&list, &next);)
        if (next.value && !has_option(all, &next)) {
            fprintf(stream, ",%.*s=", (int)next.key_length, next.key);
            write_value(stream, TW_OPTION_REAL, next.value, next.value_length);
        }
}

static void write_in_full(FILE *stream, const char *spec, const scheme_options *all)
{
    fprintf(stream, "%.*s", (int)strcspn(spec, ":"), spec);
    for (size_t i = 0; i < all->count; i++) {
        tw_option_info option = option_at(all, i);
        size_t length = 0;
        const char *value = scheme_text_value(spec, option.name, &length);
        fprintf(stream, "%c%s=", i ? ',' : ':', option.name);
        if (!value) length = strlen(option.fallback);
        write_value(stream, option.kind, value ? value : option.fallback, length);
    }
    write_others(stream, spec, all);
}

char *scheme_in_full(const char *spec)
{
    scheme_options all = options_of(spec);
    char *text = NULL;
    size_t size;
    FILE *stream = all.tell ? open_memstream(&text, &size) : NULL;
    if (!stream) return NULL;
    write_in_full(stream, spec, &all);
    if (fclose(stream) == 0) return text;
    free(text);
    return NULL;
}

/* ---- a wrong name ------------------------------------------------------------------------------------------------ */

/* "sgd, dgc, which exchange gradients, and dpsgd, which exchange weights" */
static void list_names(char *text, size_t capacity)
{
    size_t used = 0;
    for (size_t way = 0; exchange_at(way) && used < capacity; way++) {
        const scheme_list *list = &exchange_at(way)->schemes;
        for (size_t i = 0; i < list->count() && used < capacity; i++)
            used += (size_t)snprintf(text + used, capacity - used, "%s%s",
                                     i     ? ", "
                                     : way ? ", and "
                                           : "",
                                     list->name(i));
        if (used < capacity) used += (size_t)snprintf(text + used, capacity - used, ", which exchange %s", list->what);
    }
}

tw_status scheme_check(const char *spec)
{
    size_t scheme;
    char names[768] = "";
    TW_TRY(words_check_printed(TW_ERROR_ARGUMENT, "--sync", spec));
    if (exchange_find(spec, &scheme)) return scheme_check_spelling(spec);
    const char *nearest = words_nearest(spec, strcspn(spec, ":"), scheme_word);
    if (nearest)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "no scheme \"%.*s\"; did you mean %s? thinwire schemes lists them; --plugin FILE loads others",
                       (int)strcspn(spec, ":"), spec, nearest);
    list_names(names, sizeof names);
    return tw_fail(TW_ERROR_ARGUMENT,
                   "no scheme \"%.*s\"; there are %s; one of somebody else's is loaded with --plugin FILE",
                   (int)strcspn(spec, ":"), spec, names);
}
