/* options_page.h - a page of documentation against the help of what it describes: each scheme has a section, whose
 * table of options is the one that help prints, defaults included; what all have stands in a section of its own. */
#ifndef TESTS_OPTIONS_PAGE_H
#define TESTS_OPTIONS_PAGE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka.h"

enum { PAGE_NAME = 64, PAGE_LINE = 512 };

/* The whole of a file, to be freed. */
static inline char *page_read(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(file);
    char *text = calloc(size + 1, 1);
    rewind(file);
    assert_int_equal(fread(text, 1, size, file), size);
    fclose(file);
    return text;
}

/* A copy of the section under a heading. */
static inline char *page_section(const char *page, const char *heading)
{
    char line[PAGE_LINE];
    snprintf(line, sizeof line, "\n## %s\n", heading);
    const char *start = strstr(page, line);
    if (!start) fail_msg("no section \"## %s\"", heading);
    const char *end = strstr(start + 1, "\n## ");
    return strndup(start, end ? (size_t)(end - start) : strlen(start));
}

static inline int page_has_row(const char *section, const char *option, const char *initially)
{
    char row[PAGE_LINE];
    snprintf(row, sizeof row, "\n| `%s` | %s |", option, strcmp(initially, "\"\"") == 0 ? "none" : initially);
    return strstr(section, row) != NULL;
}

static inline size_t page_rows(const char *section)
{
    size_t count = 0;
    const char *table = strstr(section, "\n| option |"), *end = table ? strstr(table, "\n\n") : NULL;
    for (; table && table < end; table = strstr(table + 1, "\n| `")) count++;
    return count ? count - 1 : 0; /* the head */
}

/* Whether the section of a scheme has the row, or the section of another scheme to which it refers for the rest. */
static inline int page_tells(const char *page, const char *name, const char *option, const char *initially)
{
    static const char refers[] = "The other options are [those of `";
    char *section = page_section(page, name), other[PAGE_NAME] = "";
    const char *at = strstr(section, refers);
    if (at) assert_int_equal(sscanf(at + strlen(refers), "%63[^`]", other), 1);
    int tells = page_has_row(section, option, initially) || (at && page_tells(page, other, option, initially));
    free(section);
    return tells;
}

/* Every option of the help has a row, in the scheme's section or one that it refers to or the common one, and the
 * scheme's has no other. */
static inline void page_check_options(const char *page, const char *name, const char *help)
{
    char *own = page_section(page, name), *common = page_section(page, "Options of every scheme");
    char option[PAGE_NAME], initially[PAGE_NAME];
    size_t rows = 0;
    for (const char *line = strchr(help, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        assert_int_equal(sscanf(line, " %63s %63s", option, initially), 2);
        if (!page_tells(page, name, option, initially) && !page_has_row(common, option, initially))
            fail_msg("%s: no row \"| `%s` | %s |\"", name, option, initially);
        rows += (size_t)page_has_row(own, option, initially);
    }
    if (rows != page_rows(own)) fail_msg("%s: a row too many", name);
    free(own);
    free(common);
}

/* The table at the top. */
static inline void page_check_entry(const char *page, const char *name)
{
    char row[PAGE_LINE];
    snprintf(row, sizeof row, "\n| [`%s`](#%s) |", name, name);
    if (!strstr(page, row)) fail_msg("no row for %s", name);
}

#endif
