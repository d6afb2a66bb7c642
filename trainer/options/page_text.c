#include "page_text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    USUAL_WIDTH = 80, /* where nobody knows */
    NARROW = 80,      /* below it the meanings begin nearer to the margin */
    LEAST_WIDTH = 40,
    MOST_WIDTH = 1000,
    COLUMN = 24, /* where meanings begin */
    COLUMN_IF_NARROW = 8
};

static bool is_terminal(FILE *file)
{
    int descriptor = fileno(file);
    return descriptor >= 0 && isatty(descriptor);
}

static int find_width(FILE *file)
{
    const char *columns = getenv("COLUMNS");
    struct winsize size;
    long width = columns ? strtol(columns, NULL, 10) : 0;
    if (width <= 0 && is_terminal(file) && ioctl(fileno(file), TIOCGWINSZ, &size) == 0) width = size.ws_col;
    if (width <= 0) return USUAL_WIDTH;
    return (int)(width < LEAST_WIDTH ? LEAST_WIDTH : width > MOST_WIDTH ? MOST_WIDTH : width);
}

/* no-color.org: set and not empty means none. */
static bool is_bold(FILE *file)
{
    const char *off = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return !(off && *off) && terminal && strcmp(terminal, "dumb") != 0 && is_terminal(file);
}

page_text page_text_begin(FILE *file)
{
    return (page_text){.file = file, .width = find_width(file), .bold = is_bold(file)};
}

static void set_bold(const page_text *page, bool on)
{
    if (page->bold) fputs(on ? "\033[1m" : "\033[0m", page->file);
}

/* Prints words, broken into lines that begin at `indent`; the first continues at `column`. */
static void print_wrapped(const page_text *page, const char *text, int indent, int column)
{
    while (*text) {
        int length = (int)strcspn(text, " \n");
        if (column > indent && column + 1 + length > page->width) {
            fputc('\n', page->file);
            column = 0;
        }
        if (column < indent)
            column += fprintf(page->file, "%*s", indent - column, "");
        else if (column > indent)
            column += fprintf(page->file, " ");
        column += fprintf(page->file, "%.*s", length, text);
        text += length;
        text += strspn(text, " \n");
    }
    fputc('\n', page->file);
}

void page_text_title(const page_text *page, const char *title)
{
    fputc('\n', page->file);
    set_bold(page, true);
    fprintf(page->file, "%s:", title);
    set_bold(page, false);
    fputc('\n', page->file);
}

void page_text_paragraph(const page_text *page, const char *text)
{
    print_wrapped(page, text, 0, 0);
}

void page_text_entry(const page_text *page, const char *name, const char *value, const char *meaning)
{
    int indent = page->width < NARROW ? COLUMN_IF_NARROW : COLUMN;
    int column = fprintf(page->file, "  ");
    set_bold(page, true);
    column += fprintf(page->file, "%s", name);
    set_bold(page, false);
    if (*value) column += fprintf(page->file, " %s", value);
    if (column > indent - 2) {
        fputc('\n', page->file);
        column = 0;
    }
    print_wrapped(page, meaning, indent, column);
}
