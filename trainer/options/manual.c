/* The page of man, made from the rows. */

#include "options.h"
#include "value.h"

/* Backslashes, hyphens that are minus signs, and lines that begin like a request. */
static void print_roff(FILE *file, const char *text)
{
    for (bool begins = true; *text; begins = *text++ == '\n') {
        if (begins && (*text == '.' || *text == '\'')) fputs("\\&", file);
        if (*text == '\\')
            fputs("\\e", file);
        else if (*text == '-')
            fputs("\\-", file);
        else
            fputc(*text, file);
    }
}

static void print_section(FILE *file, const char *title, const char *text)
{
    fprintf(file, ".SH %s\n", title);
    print_roff(file, text);
    fputc('\n', file);
}

void options_manual_begin(FILE *file, const char *name, const char *summary, const char *usage)
{
    char title[OPTION_NAME_MOST] = "";
    for (size_t i = 0; name[i] && i + 1 < sizeof title; i++)
        title[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : name[i]);
    fprintf(file, ".TH %s 1 \"\" \"thinwire %s\" \"thinwire\"\n.SH NAME\n", title, tw_version());
    print_roff(file, name);
    fputs(" \\- ", file);
    print_roff(file, summary);
    fputc('\n', file);
    print_section(file, "SYNOPSIS", usage);
}

void options_manual_entry(FILE *file, const char *name, const char *value, const char *meaning)
{
    fputs(".TP\n\\fB", file);
    print_roff(file, name);
    fputs("\\fR", file);
    if (*value) {
        fputs(" \\fI", file);
        print_roff(file, value);
        fputs("\\fR", file);
    }
    fputc('\n', file);
    print_roff(file, meaning);
    fputc('\n', file);
}

static void print_option(FILE *file, const option_row *row)
{
    option_entry entry = option_explain(row);
    options_manual_entry(file, entry.name, entry.value, entry.meaning);
}

static void print_lent(FILE *file, const option_page *page)
{
    char list[OPTION_LENT_MOST];
    if (!page->lender) return;
    option_list_lent(page, list);
    fputs(".SS " OPTION_LENT_TITLE "\n", file);
    print_roff(file, list);
    fputc('\n', file);
}

void options_manual(const option_page *page, const char *name, const char *summary, FILE *file)
{
    options_manual_begin(file, name, summary, page->usage);
    if (page->description) print_section(file, "DESCRIPTION", page->description);
    if (page->count > 0) fputs(".SH OPTIONS\n", file);
    for (size_t i = 0; i < option_own_count(page); i++) {
        if (page->rows[i].file_only) continue;
        if (page->rows[i].name)
            print_option(file, &page->rows[i]);
        else
            fprintf(file, ".SS %s\n", page->rows[i].help);
    }
    print_lent(file, page);
    if (page->examples) {
        fputs(".SH EXAMPLES\n.nf\n", file);
        print_roff(file, page->examples);
        fputs(".fi\n", file);
    }
    options_manual_end(file);
}

void options_manual_end(FILE *file)
{
    print_section(
        file, "EXIT STATUS",
        "0 means success. 2 means that the command line, a file or the data were wrong, 3 that another worker "
        "was lost, 4 that training diverged, and 130 that somebody interrupted the run. Errors are one "
        "sentence on standard error.");
    print_section(file, "SEE ALSO",
                  "thinwire(1), thinwire-train(1), thinwire-schemes(1), and docs/README.md in the source tree");
}
