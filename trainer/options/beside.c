/* Options that count only beside another one. */
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "pairs.h"
#include "value.h"

/* Whether an option is on, or has the value that is asked for. */
static bool is_beside(const options *set, const pair *wanted)
{
    char space[OPTION_TEXT_MOST];
    const size_t index = option_find(set->page, wanted->key, wanted->key_length);
    if (index == set->page->count) return false;
    const option_row *row = &set->page->rows[index];
    const char *value = options_value(row, set->target, space);
    if (!value) return false;
    if (!wanted->value) return row->kind == OPTION_TEXT || (strcmp(value, "0") != 0 && strcmp(value, "false") != 0);
    return strlen(value) == wanted->value_length && memcmp(value, wanted->value, wanted->value_length) == 0;
}

static bool is_any_beside(const options *set, const char *wanted)
{
    for (pair next; pair_next(&wanted, &next);)
        if (is_beside(set, &next)) return true;
    return false;
}

/* "--join, --transport tcp or --seal" */
static void describe_wanted(const char *wanted, char *text, size_t room)
{
    size_t used = 0;
    for (pair next; used < room && pair_next(&wanted, &next);)
        used += (size_t)snprintf(text + used, room - used, "%s--%.*s%s%.*s",
                                 !used     ? ""
                                 : *wanted ? ", "
                                           : " or ",
                                 (int)next.key_length, next.key, next.value ? " " : "", (int)next.value_length,
                                 next.value ? next.value : "");
}

static tw_status refuse_lonely(const options *set, const option_row *row)
{
    char space[OPTION_TEXT_MOST], wanted[256];
    const char *value = row->kind == OPTION_FLAG ? "" : options_value(row, set->target, space);
    describe_wanted(row->beside, wanted, sizeof wanted);
    return tw_fail(TW_ERROR_ARGUMENT, "--%s%s%s counts only beside %s: add that, or leave --%s out", row->name,
                   *value ? " " : "", value, wanted, row->name);
}

tw_status options_check_beside(const options *set)
{
    for (size_t i = 0; i < set->page->count; i++) {
        const option_row *row = &set->page->rows[i];
        if (row->beside && set->sources[i] == OPTION_FROM_LINE && !is_any_beside(set, row->beside))
            return refuse_lonely(set, row);
    }
    return TW_OK;
}
