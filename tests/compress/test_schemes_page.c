/* docs/schemes.md, and what thinwire.h says of options, keep step with the code. */
#include "options_page.h"

#include <ctype.h>
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

/* What a header says of an option: a line that begins with its name, and those up to the next such line. */
static char *paragraph_of(const char *header, const char *option)
{
    char begin[PAGE_NAME];
    snprintf(begin, sizeof begin, "\n *   %s=", option);
    const char *start = strstr(header, begin);
    if (!start) fail_msg("thinwire.h has no line \" *   %s=\"", option);
    const char *end = start + 1;
    while (strncmp(end, "*/", 2) != 0 && !(strncmp(end, "\n *   ", 6) == 0 && islower(end[6]))) end++;
    return strndup(start, (size_t)(end - start));
}

/* "(default 2; for allreduce, fp16 and bf16 4)": the number behind the scheme's name where it is named, else the first.
 * A default that is explained, "(default 0: ...)", is the same for all. */
static const char *default_of(const char *paragraph, const char *scheme, const char *fallback)
{
    const char *said = strstr(paragraph, "(default ");
    if (!said) fail_msg("no default in \"%s\"", paragraph);
    said += strlen("(default ");
    if (strncmp(said, fallback, strlen(fallback)) == 0 && said[strlen(fallback)] == ':') return said;
    const char *own = strstr(said, scheme);
    while (own && *own && !(isspace(own[0]) && isdigit(own[1]))) own++;
    return own && *own ? own + 1 : said;
}

TEST(test_the_header_has_the_defaults_of_settled_schemes)
{
    char *header = page_read(HEADER);
    for (size_t i = 0; i < tw_schemes_count() && !tw_schemes_is_experimental(i); i++)
        for (size_t n = 0; n < tw_schemes_option_count(i); n++) {
            tw_option_info option = {.struct_size = sizeof option};
            assert_int_equal(tw_schemes_option(i, n, &option), TW_OK);
            if (!option.common || !*option.fallback) continue;
            char *paragraph = paragraph_of(header, option.name);
            const char *said = default_of(paragraph, tw_schemes_name(i), option.fallback);
            if (strncmp(said, option.fallback, strlen(option.fallback)) != 0)
                fail_msg("%s: its %s is %s by default, and thinwire.h has \"%s\"", tw_schemes_name(i), option.name,
                         option.fallback, said);
            free(paragraph);
        }
    free(header);
}

RUN_TESTS(NULL, NULL)
