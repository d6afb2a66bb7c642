/* The page behind --help, made from the rows. */
#include <math.h>

#include "options.h"
#include "page_text.h"
#include "value.h"

enum { WIDE = 1000000 }; /* an end beyond it is there for the parser's sake */

/* "1 to 1000", "at least 1"; empty where nobody needs it. A default that stands for something else is no such number.
 */
static void describe_range(const option_row *row, char *text, size_t capacity)
{
    option_row shown = *row;
    text[0] = 0;
    if (row->most >= WIDE) shown.most = INFINITY;
    shown.least = option_least(row);
    if (shown.least == 0 && !isfinite(shown.most)) return;
    if (row->kind == OPTION_REAL && row->least > 0 && !isfinite(shown.most)) shown.least = -INFINITY;
    option_describe_range(&shown, text, capacity);
}

/* " (default: 5; 1 to 1000)", as far as there is something to say. */
static void describe_value(const option_row *row, char *text, size_t capacity)
{
    char range[OPTION_RANGE_MOST];
    const char *fallback = row->stands_for ? row->stands_for : row->kind != OPTION_FLAG ? row->fallback : NULL;
    describe_range(row, range, sizeof range);
    text[0] = 0;
    if (!fallback && !*range) return;
    snprintf(text, capacity, " (%s%s%s%s)", fallback ? "default: " : "", fallback ? fallback : "",
             fallback && *range ? "; " : "", range);
}

option_entry option_explain(const option_row *row)
{
    char value[512];
    option_entry entry = {.value = ""};
    const char *choices = row->kind == OPTION_CHOICE ? row->choices : "";
    describe_value(row, value, sizeof value);
    snprintf(entry.name, sizeof entry.name, "--%s", row->name);
    if (row->kind != OPTION_FLAG)
        snprintf(entry.value, sizeof entry.value, row->alone ? "[%s]" : "%s",
                 row->placeholder ? row->placeholder : "WORD");
    snprintf(entry.meaning, sizeof entry.meaning, "%s%s%s%s", row->help, *choices ? ": " : "", choices, value);
    return entry;
}

size_t option_own_count(const option_page *page)
{
    return page->lender ? page->own : page->count;
}

void option_list_lent(const option_page *page, char text[OPTION_LENT_MOST])
{
    int used = snprintf(text, OPTION_LENT_MOST, "%s explains these:", page->lender);
    for (size_t i = page->own, listed = 0; i < page->count; i++)
        if (!page->rows[i].file_only)
            used += snprintf(text + used, OPTION_LENT_MOST - (size_t)used, "%s --%s", listed++ ? "," : "",
                             page->rows[i].name);
}

static void print_lent(const page_text *text, const option_page *page)
{
    char list[OPTION_LENT_MOST];
    if (!page->lender) return;
    option_list_lent(page, list);
    page_text_title(text, OPTION_LENT_TITLE);
    page_text_paragraph(text, list);
}

static void print_option(const page_text *text, const option_row *row)
{
    option_entry entry = option_explain(row);
    page_text_entry(text, entry.name, entry.value, entry.meaning);
}

void options_help(const option_page *page, FILE *file)
{
    page_text text = page_text_begin(file);
    fprintf(file, "Usage: %s\n", page->usage);
    if (page->description) {
        fputc('\n', file);
        page_text_paragraph(&text, page->description);
    }
    for (size_t i = 0; i < option_own_count(page); i++) {
        if (page->rows[i].file_only) continue;
        if (page->rows[i].name)
            print_option(&text, &page->rows[i]);
        else
            page_text_title(&text, page->rows[i].help);
    }
    print_lent(&text, page);
    if (!page->examples) return;
    page_text_title(&text, "Examples");
    fputs(page->examples, file);
}
