#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "value.h"

/* "what was there,text", for a list that the command line goes on with. */
static tw_status options_append(const options *set, const option_row *row, option_value *value)
{
    const char *before = *(char *const *)((const char *)set->target + row->offset);
    char *both;
    if (asprintf(&both, "%s,%s", before, value->text) < 0) both = NULL;
    free(value->text);
    value->text = both;
    return both ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for --%s", row->name);
}

tw_status option_set(options *set, size_t index, const char *text, const option_origin *origin)
{
    const option_row *row = &set->page->rows[index];
    option_value value;
    TW_TRY(option_value_read(row, text, origin, &value));
    if (set->sources[index] > origin->source) {
        if (row->kind == OPTION_TEXT) free(value.text);
        return TW_OK;
    }
    if (row->list && origin->source == OPTION_FROM_LINE && set->sources[index] == OPTION_FROM_LINE)
        TW_TRY(options_append(set, row, &value));
    option_value_store(row, set->target, value);
    set->sources[index] = (unsigned char)origin->source;
    return TW_OK;
}

static tw_status set_defaults(options *set)
{
    for (size_t i = 0; i < set->page->count; i++) {
        const option_row *row = &set->page->rows[i];
        const option_origin origin = {OPTION_FROM_DEFAULT, row->name, TW_ERROR_ARGUMENT};
        if (row->name && row->fallback) TW_TRY(option_set(set, i, row->fallback, &origin));
    }
    return TW_OK;
}

static tw_status options_refuse_unknown(const options *set, const char *word, size_t length)
{
    const char *nearest = option_nearest(set->page, word + 2, length - 2);
    if (nearest)
        return tw_fail(TW_ERROR_ARGUMENT, "unknown option %.*s; did you mean --%s?", (int)length, word, nearest);
    return tw_fail(TW_ERROR_ARGUMENT, "unknown option %.*s; --help lists the options", (int)length, word);
}

static tw_status refuse_missing(const option_row *row)
{
    char right[512];
    option_describe(row, right, sizeof right);
    return tw_fail(TW_ERROR_ARGUMENT, "--%s needs a value, %s: --%s=%s", row->name, right, row->name,
                   row->placeholder ? row->placeholder : "WORD");
}

/* One option that begins at argv[*at]; *at moves over a value that stands in a word of its own. */
static tw_status parse_option(options *set, int argc, char **argv, int *at)
{
    const char *word = argv[*at], *value = strchr(word, '=');
    size_t length = value ? (size_t)(value - word) : strlen(word);
    size_t index = option_find(set->page, word + 2, length - 2);
    if (index == set->page->count || set->page->rows[index].file_only) return options_refuse_unknown(set, word, length);

    const option_row *row = &set->page->rows[index];
    if (value)
        value++;
    else if (row->kind == OPTION_FLAG)
        value = "on";
    else if (*at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0)
        value = argv[++*at];
    else if (row->alone)
        value = row->alone;
    else
        return refuse_missing(row);

    char label[128];
    snprintf(label, sizeof label, "--%s", row->name);
    return option_set(set, index, value, &(option_origin){OPTION_FROM_LINE, label, TW_ERROR_ARGUMENT});
}

static bool is_help(const char *word)
{
    return strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0;
}

static tw_status parse_words(options *set, int argc, char **argv)
{
    bool more_options = true;
    for (int at = 0; at < argc; at++) {
        char *word = argv[at];
        if (!more_options || word[0] != '-' || word[1] == 0)
            argv[set->argument_count++] = word;
        else if (strcmp(word, "--") == 0)
            more_options = false;
        else if (word[1] != '-')
            return tw_fail(TW_ERROR_ARGUMENT, "unknown option %s; options are words: --name", word);
        else
            TW_TRY(parse_option(set, argc, argv, &at));
    }
    return TW_OK;
}

/* The words of a usage line that stand for others are in capitals: this is one of them, as long as *length. */
static const char *usage_word(const char *usage, size_t index, size_t *length)
{
    usage += strspn(usage, "[");
    for (*length = strcspn(usage, " .]"); *usage; *length = strcspn(usage, " .]")) {
        if (*usage >= 'A' && *usage <= 'Z' && index-- == 0) return usage;
        usage += strcspn(usage, " ");
        usage += strspn(usage, " [");
    }
    return usage;
}

static tw_status refuse_too_few(const options *set)
{
    size_t length;
    const char *missing = usage_word(set->page->usage, set->argument_count, &length);
    return tw_fail(TW_ERROR_ARGUMENT, "%.*s is missing; usage: %s", (int)length, missing, set->page->usage);
}

static tw_status check_arguments(const options *set)
{
    const option_page *page = set->page;
    if (set->argument_count < page->least_arguments) return refuse_too_few(set);
    if (set->argument_count > page->most_arguments)
        return tw_fail(TW_ERROR_ARGUMENT, "\"%s\" is one word too many; usage: %s",
                       set->arguments[page->most_arguments], page->usage);
    return TW_OK;
}

static tw_status parse_line(options *set, int argc, char **argv)
{
    TW_TRY(set_defaults(set));
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) set->help |= is_help(argv[i]);
    if (set->help) return TW_OK;
    TW_TRY(parse_words(set, argc, argv));
    return check_arguments(set);
}

tw_status options_add_row(option_row all[OPTIONS_MOST], size_t *count, const option_row *row)
{
    if (*count == OPTIONS_MOST)
        return tw_fail(TW_ERROR_ARGUMENT, "a page has at most %d rows; there is none left for '%s'", OPTIONS_MOST,
                       row->name ? row->name : row->help);
    all[(*count)++] = *row;
    return TW_OK;
}

tw_status options_parse(const option_page *page, int argc, char **argv, void *target, options *set)
{
    *set = (options){.page = page, .target = target, .arguments = argv};
    if (page->count > OPTIONS_MOST)
        return tw_fail(TW_ERROR_ARGUMENT, "a page has at most %d rows, not %zu", OPTIONS_MOST, page->count);
    tw_status status = parse_line(set, argc, argv);
    if (status != TW_OK) options_release(set);
    return status;
}

tw_status options_default(options *set, const char *name, const char *text)
{
    char label[128];
    snprintf(label, sizeof label, "the default of --%s", name);
    option_origin origin = {OPTION_FROM_DEFAULT, label, TW_ERROR_ARGUMENT};
    return option_set(set, option_find(set->page, name, strlen(name)), text, &origin);
}

tw_status options_inherit(options *set, size_t index, const char *text)
{
    char label[128];
    snprintf(label, sizeof label, "--%s of the run that goes on", set->page->rows[index].name);
    return option_set(set, index, text, &(option_origin){OPTION_FROM_RUN, label, TW_ERROR_FORMAT});
}

static bool same_in_full(const option_row *row, const char *a, const char *b)
{
    char *left = row->in_full(a), *right = row->in_full(b);
    bool same = left && right && strcmp(left, right) == 0;
    free(left);
    free(right);
    return same;
}

bool options_same(const option_row *row, const char *a, const char *b)
{
    if (!a || !b) return a == b;
    return strcmp(a, b) == 0 || (row->in_full && same_in_full(row, a, b));
}

option_source options_source(const options *set, const char *name)
{
    size_t index = option_find(set->page, name, strlen(name));
    return index < set->page->count ? (option_source)set->sources[index] : OPTION_FROM_DEFAULT;
}

bool options_given(const options *set, const char *name)
{
    return options_source(set, name) != OPTION_FROM_DEFAULT;
}

void options_release(options *set)
{
    for (size_t i = 0; i < set->page->count; i++) {
        const option_row *row = &set->page->rows[i];
        if (row->name && row->kind == OPTION_TEXT) option_value_store(row, set->target, (option_value){.text = NULL});
    }
}
