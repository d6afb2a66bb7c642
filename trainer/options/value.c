#include "value.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "words.h"

/* Whole numbers with all their digits. */
static const char *write_end(const option_row *row, double end, char space[OPTION_TEXT_MOST])
{
    snprintf(space, OPTION_TEXT_MOST, row->kind == OPTION_INTEGER ? "%.0f" : "%.15g", end);
    return space;
}

bool option_is_in_files(const option_row *row)
{
    return row->name && !row->line_only;
}

double option_least(const option_row *row)
{
    if (!row->stands_for || !row->fallback || strtod(row->fallback, NULL) != row->least) return row->least;
    if (row->kind == OPTION_INTEGER) return row->least + 1;
    return row->least < 0 ? 0 : row->least;
}

void option_describe_range(const option_row *row, char *text, size_t capacity)
{
    char least[OPTION_TEXT_MOST], most[OPTION_TEXT_MOST];
    bool from = isfinite(row->least), to = isfinite(row->most);
    text[0] = 0;
    if (row->kind != OPTION_INTEGER && row->kind != OPTION_REAL) return;
    write_end(row, row->least, least);
    write_end(row, row->most, most);
    if (from && to)
        snprintf(text, capacity, "%s to %s", least, most);
    else if (from || to)
        snprintf(text, capacity, "at %s %s", from ? "least" : "most", from ? least : most);
}

void option_describe(const option_row *row, char *text, size_t capacity)
{
    static const char *const nouns[] = {[OPTION_FLAG] = "on or off",
                                        [OPTION_TEXT] = "a text",
                                        [OPTION_INTEGER] = "a whole number",
                                        [OPTION_REAL] = "a number",
                                        [OPTION_CHOICE] = "one of "};
    char range[OPTION_RANGE_MOST];
    option_row shown = *row;
    shown.least = option_least(row);
    option_describe_range(&shown, range, sizeof range);
    const char *joint = !*range ? "" : isfinite(shown.least) && isfinite(shown.most) ? " from " : " of ";
    snprintf(text, capacity, "%s%s%s", nouns[row->kind], joint, row->kind == OPTION_CHOICE ? row->choices : range);
}

/* The position of `word` in "one|two|three"; -1 if it is none of them. */
static int word_position(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (int position = 0; *words; position++) {
        size_t width = strcspn(words, "|");
        if (width == length && memcmp(words, word, width) == 0) return position;
        words += width + (words[width] == '|');
    }
    return -1;
}

static bool read_flag(const char *text, bool *flag)
{
    int position = word_position("off|on|false|true|no|yes", text);
    *flag = position % 2 == 1;
    return position >= 0;
}

static bool read_integer(const char *text, long *integer)
{
    char *end;
    errno = 0;
    *integer = strtol(text, &end, 10);
    return end != text && !*end && !errno && !isspace((unsigned char)*text);
}

/* Whether a number that is not 0 would be taken for 0, or for next to nothing. */
static bool is_too_small(const char *text)
{
    char *end;
    errno = 0;
    double real = strtod(text, &end);
    return end != text && !*end && errno == ERANGE && fabs(real) < 1;
}

static bool read_real(const char *text, double *real)
{
    char *end;
    *real = strtod(text, &end);
    return end != text && !*end && !isspace((unsigned char)*text) && isfinite(*real) && !is_too_small(text);
}

/* What stands for the default comes from everywhere but the command line. */
static bool is_within(const option_row *row, double number, const option_origin *origin)
{
    if (number == row->least && origin->source != OPTION_FROM_LINE) return true;
    return number >= option_least(row) && number <= row->most;
}

static bool value_read_value(const option_row *row, const char *text, const option_origin *origin, option_value *value)
{
    switch (row->kind) {
    case OPTION_FLAG:
        return read_flag(text, &value->flag);
    case OPTION_TEXT:
        return true;
    case OPTION_INTEGER:
        return read_integer(text, &value->integer) && is_within(row, (double)value->integer, origin);
    case OPTION_REAL:
        return read_real(text, &value->real) && is_within(row, value->real, origin);
    case OPTION_CHOICE:
        value->choice = word_position(row->choices, text);
        return value->choice >= 0;
    }
    return false;
}

tw_status option_value_read(const option_row *row, const char *text, const option_origin *origin, option_value *value)
{
    if (row->kind != OPTION_TEXT) TW_TRY(words_check_printed(origin->blame, origin->label, text));
    if (!value_read_value(row, text, origin, value)) {
        char right[512];
        if (row->kind == OPTION_REAL && is_too_small(text))
            return tw_fail(
                origin->blame,
                "%s: no computer's number is as small as %s, which would be taken for 0: write 0, or a larger number",
                origin->label, text);
        option_describe(row, right, sizeof right);
        return tw_fail(origin->blame, "%s: \"%s\" is not %s", origin->label, text, right);
    }
    if (row->kind != OPTION_TEXT) return TW_OK;
    value->text = strdup(text);
    return value->text ? TW_OK : tw_fail(TW_ERROR_MEMORY, "%s: no memory for its value", origin->label);
}

void option_value_store(const option_row *row, void *target, option_value value)
{
    void *place = (char *)target + row->offset;
    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)place = value.flag;
        break;
    case OPTION_TEXT:
        free(*(char **)place);
        *(char **)place = value.text;
        break;
    case OPTION_INTEGER:
        *(long *)place = value.integer;
        break;
    case OPTION_REAL:
        *(double *)place = value.real;
        break;
    case OPTION_CHOICE:
        *(int *)place = value.choice;
        break;
    }
}

/* The shortest of the usual forms that reads back to the same number. */
static const char *write_real(double real, char space[OPTION_TEXT_MOST])
{
    snprintf(space, OPTION_TEXT_MOST, "%.15g", real);
    if (strtod(space, NULL) != real) snprintf(space, OPTION_TEXT_MOST, "%.17g", real);
    return space;
}

void options_choice_word(const char *choices, int position, char *word, size_t capacity)
{
    for (; position > 0; position--) choices += strcspn(choices, "|") + 1;
    snprintf(word, capacity, "%.*s", (int)strcspn(choices, "|"), choices);
}

const char *options_value(const option_row *row, const void *target, char space[OPTION_TEXT_MOST])
{
    const void *place = (const char *)target + row->offset;
    switch (row->kind) {
    case OPTION_FLAG:
        return *(const bool *)place ? "true" : "false";
    case OPTION_TEXT:
        return *(char *const *)place;
    case OPTION_INTEGER:
        snprintf(space, OPTION_TEXT_MOST, "%ld", *(const long *)place);
        return space;
    case OPTION_REAL:
        return write_real(*(const double *)place, space);
    case OPTION_CHOICE:
        options_choice_word(row->choices, *(const int *)place, space, OPTION_TEXT_MOST);
        return space;
    }
    return NULL;
}
