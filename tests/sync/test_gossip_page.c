/* docs/gossip.md keeps step with the code. */
#include "options_page.h"

#include <thinwire/thinwire_gossip.h>

TEST(test_every_option_stands_there_with_its_default)
{
    char *page = page_read(GOSSIP_PAGE), help[8192];
    for (size_t i = 0; i < tw_gossips_count(); i++) {
        tw_gossips_help(i, help, sizeof help);
        page_check_options(page, tw_gossips_name(i), help);
    }
    free(page);
}

TEST(test_every_scheme_stands_in_the_table)
{
    char *page = page_read(GOSSIP_PAGE);
    for (size_t i = 0; i < tw_gossips_count(); i++) page_check_entry(page, tw_gossips_name(i));
    free(page);
}

RUN_TESTS(NULL, NULL)
