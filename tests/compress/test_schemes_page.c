/* docs/schemes.md keeps step with the code: every scheme has a section, and its table of options is the one that
 * tw_scheme_help prints, defaults included. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <thinwire/thinwire.h>

enum { NAME = 64, LINE = 512 };

static char *read_page(void)
{
    FILE *file = fopen(SCHEMES_PAGE, "r");
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
static char *section_of(const char *page, const char *heading)
{
    char line[LINE];
    snprintf(line, sizeof line, "\n## %s\n", heading);
    const char *start = strstr(page, line);
    if (!start) fail_msg("no section \"## %s\"", heading);
    const char *end = strstr(start + 1, "\n## ");
    return strndup(start, end ? (size_t)(end - start) : strlen(start));
}

static int has_row(const char *section, const char *option, const char *initially)
{
    char row[LINE];
    snprintf(row, sizeof row, "\n| `%s` | %s |", option, strcmp(initially, "\"\"") == 0 ? "none" : initially);
    return strstr(section, row) != NULL;
}

static size_t rows_of(const char *section)
{
    size_t count = 0;
    const char *table = strstr(section, "\n| option |"), *end = table ? strstr(table, "\n\n") : NULL;
    for (; table && table < end; table = strstr(table + 1, "\n| `")) count++;
    return count ? count - 1 : 0; /* the head */
}

static void check_scheme(const char *page, size_t index)
{
    char *own = section_of(page, tw_scheme_name(index)), *common = section_of(page, "Options of every scheme");
    char help[8192], option[NAME], initially[NAME];
    size_t rows = 0;
    tw_scheme_help(index, help, sizeof help);
    for (const char *line = strchr(help, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        assert_int_equal(sscanf(line, " %63s %63s", option, initially), 2);
        int is_own = has_row(own, option, initially);
        if (!is_own && !has_row(common, option, initially))
            fail_msg("%s: no row \"| `%s` | %s |\"", tw_scheme_name(index), option, initially);
        rows += (size_t)is_own;
    }
    if (rows != rows_of(own)) fail_msg("%s: a row too many", tw_scheme_name(index));
    free(own);
    free(common);
}

static void test_every_option_stands_there_with_its_default(void **state)
{
    (void)state;
    char *page = read_page();
    for (size_t i = 0; i < tw_scheme_count(); i++) check_scheme(page, i);
    free(page);
}

/* The table at the top. */
static void test_every_scheme_stands_in_the_table(void **state)
{
    (void)state;
    char *page = read_page(), row[LINE];
    for (size_t i = 0; i < tw_scheme_count(); i++) {
        snprintf(row, sizeof row, "\n| [`%s`](#%s) |", tw_scheme_name(i), tw_scheme_name(i));
        if (!strstr(page, row)) fail_msg("no row for %s", tw_scheme_name(i));
    }
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_option_stands_there_with_its_default),
        cmocka_unit_test(test_every_scheme_stands_in_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
