/* docs/schemes.md keeps step with the code. */
#include "options_page.h"

#include <thinwire/thinwire.h>

static void test_every_option_stands_there_with_its_default(void **state)
{
    char *page = page_read(SCHEMES_PAGE), help[8192];
    for (size_t i = 0; i < tw_schemes_count(); i++) {
        tw_schemes_help(i, help, sizeof help);
        page_check_options(page, tw_schemes_name(i), help);
    }
    free(page);
}

static void test_every_scheme_stands_in_the_table(void **state)
{
    char *page = page_read(SCHEMES_PAGE);
    for (size_t i = 0; i < tw_schemes_count(); i++) page_check_entry(page, tw_schemes_name(i));
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
