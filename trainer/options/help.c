/* The page behind --help, made from the rows. */
#include <string.h>

#include "options.h"
#include "value.h"

enum { WIDTH = 100, COLUMN = 24 }; /* of the page, and where the sentences begin */

/* Prints words, broken into lines that begin at `indent`; the first continues at `column`. */
static void print_wrapped(FILE *file, const char *text, int indent, int column)
{
    while (*text) {
        int length = (int)strcspn(text, " \n");
        if (column > indent && column + 1 + length > WIDTH) {
            fputc('\n', file);
            column = 0;
        }
        if (column < indent)
            column += fprintf(file, "%*s", indent - column, "");
        else if (column > indent)
            column += fprintf(file, " ");
        column += fprintf(file, "%.*s", length, text);
        text += length;
        text += strspn(text, " \n");
    }
    fputc('\n', file);
}

/* "(default 5; 1 .. 1000)", as far as there is something to say. */
static void describe_value(const option_row *row, char *text, size_t capacity)
{
    char range[OPTION_RANGE_MOST];
    bool ranged = option_describe_range(row, range, sizeof range) > 0;
    bool fallback = row->fallback && row->kind != OPTION_FLAG;
    text[0] = 0;
    if (!fallback && !ranged) return;
    snprintf(text, capacity, " (%s%s%s%s)", fallback ? "default " : "", fallback ? row->fallback : "",
             fallback && ranged ? "; " : "", range);
}

static void print_option(const option_row *row, FILE *file)
{
    char sentence[1024], value[256];
    const char *choices = row->kind == OPTION_CHOICE ? row->choices : "";
    int column = fprintf(file, "  --%s", row->name);
    if (row->kind != OPTION_FLAG)
        column += fprintf(file, row->alone ? " [%s]" : " %s", row->placeholder ? row->placeholder : "WORD");
    if (column > COLUMN - 2) {
        fputc('\n', file);
        column = 0;
    }
    describe_value(row, value, sizeof value);
    snprintf(sentence, sizeof sentence, "%s%s%s%s", row->help, *choices ? ": " : "", choices, value);
    print_wrapped(file, sentence, COLUMN, column);
}

void options_help(const option_page *page, FILE *file)
{
    fprintf(file, "Usage: %s\n", page->usage);
    if (page->description) {
        fputc('\n', file);
        print_wrapped(file, page->description, 0, 0);
    }
    for (size_t i = 0; i < page->count; i++) {
        if (page->rows[i].name)
            print_option(&page->rows[i], file);
        else
            fprintf(file, "\n%s:\n", page->rows[i].help);
    }
    if (page->examples) fprintf(file, "\nExamples:\n%s", page->examples);
}
