/* docs/schemes.md keeps step with the code. */
#include "options_page.h"

#include <thinwire/thinwire.h>

TEST(test_every_option_stands_there_with_its_default)
{
    char *page = page_read(SCHEMES_PAGE), help[8192];
    for (size_t i = 0; i < tw_schemes_count(); i++) {
        tw_schemes_help(i, help, sizeof help);
        page_check_options(page, tw_schemes_name(i), help);
    }
    free(page);
}

TEST(test_every_scheme_stands_in_the_table)
{
    char *page = page_read(SCHEMES_PAGE);
    for (size_t i = 0; i < tw_schemes_count(); i++) page_check_entry(page, tw_schemes_name(i));
    free(page);
}

/* allreduce is the one that does not compress. */
TEST(test_the_front_page_counts_them)
{
    char *page = page_read(FRONT_PAGE), text[64];
    snprintf(text, sizeof text, "There are %zu schemes,", tw_schemes_count() - 1);
    if (!strstr(page, text)) fail_msg("README.md lacks \"%s\"", text);
    free(page);
}

RUN_TESTS(NULL, NULL)
