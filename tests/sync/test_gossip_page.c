/* docs/gossip.md keeps step with the code, and the tests it names exist. */
#include "options_page.h"

#include <thinwire/thinwire.h>

static void test_every_option_stands_there_with_its_default(void **state)
{
    (void)state;
    char *page = page_read(GOSSIP_PAGE), help[8192];
    for (size_t i = 0; i < tw_gossip_scheme_count(); i++) {
        tw_gossip_help(i, help, sizeof help);
        page_check_options(page, tw_gossip_name(i), help);
    }
    free(page);
}

static void test_every_scheme_stands_in_the_table(void **state)
{
    (void)state;
    char *page = page_read(GOSSIP_PAGE);
    for (size_t i = 0; i < tw_gossip_scheme_count(); i++) page_check_entry(page, tw_gossip_name(i));
    free(page);
}

static const char *const sources[] = {"test_gossip.c",
                                      "test_gossip_theory.c",
                                      "test_gossip_stability.c",
                                      "test_gossip_hosts.c",
                                      "test_gossip_stragglers.c",
                                      "test_gossip_failures.c",
                                      "test_gossip_compressed.c",
                                      "test_gossip_passes.c",
                                      "test_gossip_step.c"};

/* Whether one of the sources defines that test. */
static int is_defined(const char *name)
{
    char definition[2 * PAGE_LINE], path[PAGE_LINE];
    int found = 0;
    snprintf(definition, sizeof definition, "static void %s(void **state)", name);
    for (size_t i = 0; !found && i < sizeof sources / sizeof *sources; i++) {
        snprintf(path, sizeof path, "%s/%s", GOSSIP_TESTS, sources[i]);
        char *text = page_read(path);
        found = strstr(text, definition) != NULL;
        free(text);
    }
    return found;
}

static void test_the_tests_it_names_exist(void **state)
{
    (void)state;
    char *page = page_read(GOSSIP_PAGE), name[PAGE_LINE / 2];
    size_t count = 0;
    for (const char *at = strstr(page, "`test_"); at; at = strstr(at + 1, "`test_")) {
        assert_int_equal(sscanf(at, "`%255[a-z0-9_]`", name), 1);
        if (!is_defined(name)) fail_msg("no test %s", name);
        count++;
    }
    assert_true(count > 10);
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_option_stands_there_with_its_default),
        cmocka_unit_test(test_every_scheme_stands_in_the_table),
        cmocka_unit_test(test_the_tests_it_names_exist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
