/* value.h - one option's value: from text, to text, and what it may be. Private to this folder. */
#ifndef TRAINER_OPTIONS_VALUE_H
#define TRAINER_OPTIONS_VALUE_H

#include "options.h"

/* Where a text came from, and how a wrong one is spoken of: "--epochs" or "run.yaml:3: epochs". */
typedef struct option_origin {
    option_source source;
    const char *label;
    tw_status blame;
} option_origin;

typedef union option_value {
    bool flag;
    char *text; /* the reader's own copy */
    long integer;
    double real;
    int choice;
} option_value;

enum { OPTION_RANGE_MOST = 160 }; /* enough for two numbers */

tw_status option_value_read(const option_row *row, const char *text, const option_origin *origin, option_value *value);
/* Puts the value where the row says; a text that was there is freed. */
void option_value_store(const option_row *row, void *target, option_value value);

/* The least that a person may give. Where the default stands for something, a number below stands for it, and is
 * written by nobody but the program. */
double option_least(const option_row *row);
/* "a whole number of at least 1". */
void option_describe(const option_row *row, char *text, size_t capacity);
/* "1 to 1000", "at least 1"; empty where there is no range. */
void option_describe_range(const option_row *row, char *text, size_t capacity);

/* What a page says of a row: "--epochs", "N", and its sentence with the default and the range. */
enum { OPTION_NAME_MOST = 128, OPTION_MEANING_MOST = 2048 };
typedef struct option_entry {
    char name[OPTION_NAME_MOST], value[OPTION_NAME_MOST], meaning[OPTION_MEANING_MOST];
} option_entry;
option_entry option_explain(const option_row *row);
/* How many rows a page explains; and which options it has beside them, and where they are explained. */
size_t option_own_count(const option_page *page);
enum { OPTION_LENT_MOST = OPTIONS_MOST * OPTION_NAME_MOST };
void option_list_lent(const option_page *page, char text[OPTION_LENT_MOST]);
#define OPTION_LENT_TITLE "Further options"

/* Reads one text and makes it the row's value, unless a stronger source has set it. */
tw_status option_set(options *set, size_t index, const char *text, const option_origin *origin);

/* Whether options_write writes it. */
bool option_is_in_files(const option_row *row);

/* The row called `name` (`length` characters), or page->count. */
size_t option_find(const option_page *page, const char *name, size_t length);
/* The name most like a mistyped one, or NULL when none is near. */
const char *option_nearest(const option_page *page, const char *name, size_t length);

#endif
