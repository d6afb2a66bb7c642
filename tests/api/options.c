/* Every option of every scheme, as a form or a binding sees them: what is said of it is what a spec may say. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_outer.h>

#include "support/assert.h"

enum { TEXT = 512, PAGE = 16384, ROWS = 64, COLUMNS = 64 };
static const tw_tensor table[] = {{.name = "w", .dims = 2, .shape = {ROWS, COLUMNS}}};
static float weights[ROWS * COLUMNS];

/* A list of schemes, and how one of a spec is made. */
typedef struct catalogue {
    size_t (*count)(void);
    const char *(*name)(size_t index);
    int (*find)(const char *spec, size_t *index);
    size_t (*option_count)(size_t index);
    tw_status (*option)(size_t index, size_t number, tw_option_info *option);
    size_t (*help)(size_t index, char *text, size_t capacity);
    tw_status (*make)(const char *spec);
} catalogue;

static tw_status make_scheme(const char *spec)
{
    tw_scheme *scheme = NULL;
    tw_status status = tw_scheme_create(spec, table, 1, 0, 1, &scheme);
    tw_scheme_destroy(scheme);
    return status;
}

static tw_status make_gossip(const char *spec)
{
    const float *starts[] = {weights};
    tw_comm *comm;
    tw_gossip *gossip = NULL;
    assert_ok(tw_comm_create_threads(1, &comm));
    tw_status status = tw_gossip_create(comm, spec, table, 1, starts, &gossip);
    tw_gossip_destroy(gossip);
    tw_comm_destroy(comm);
    return status;
}

static tw_status make_outer(const char *spec)
{
    tw_comm *comm;
    tw_outer *outer = NULL;
    assert_ok(tw_comm_create_threads(1, &comm));
    tw_status status = tw_outer_create(comm, spec, table, 1, &outer);
    tw_outer_destroy(outer);
    tw_comm_destroy(comm);
    return status;
}

static const catalogue catalogues[] = {
    {tw_schemes_count, tw_schemes_name, tw_schemes_find, tw_schemes_option_count, tw_schemes_option, tw_schemes_help,
     make_scheme},
    {tw_gossips_count, tw_gossips_name, tw_gossips_find, tw_gossips_option_count, tw_gossips_option, tw_gossips_help,
     make_gossip},
    {tw_outers_count, tw_outers_name, tw_outers_find, tw_outers_option_count, tw_outers_option, tw_outers_help,
     make_outer},
};
enum { CATALOGUES = sizeof catalogues / sizeof *catalogues };

static tw_status set(const catalogue *all, size_t scheme, const tw_option_info *option, const char *value)
{
    char spec[TEXT];
    snprintf(spec, sizeof spec, "%s:%s=%s", all->name(scheme), option->name, value);
    return all->make(spec);
}

/* The parser takes it; what it asks for may still be more than a lone rank can have. */
static void assert_taken(const catalogue *all, size_t scheme, const tw_option_info *option, const char *value)
{
    if (set(all, scheme, option, value) != TW_OK && strstr(tw_last_error(), "must be"))
        fail_msg("%s: %s", all->name(scheme), tw_last_error());
}

static void assert_not_taken(const catalogue *all, size_t scheme, const tw_option_info *option, const char *value)
{
    char named[TEXT];
    snprintf(named, sizeof named, "%s=%s: %s must be", option->name, value, option->name);
    tw_status status = set(all, scheme, option, value);
    if (status != TW_ERROR_SPEC)
        fail_msg("%s:%s=%s: %s", all->name(scheme), option->name, value, tw_status_name(status));
    assert_said(all->name(scheme), named);
}

/* ---- what each must be ------------------------------------------------------------------------------------------- */

static void check_texts(const catalogue *all, size_t scheme, const tw_option_info *option)
{
    if (!*option->name || !*option->help || strchr(option->help, '\n'))
        fail_msg("%s: %s", all->name(scheme), option->name);
    assert_int_equal(strspn(option->name, "abcdefghijklmnopqrstuvwxyz_0123456789"), strlen(option->name));
    assert_int_equal(option->choices != NULL, option->kind == TW_OPTION_CHOICE);
    assert_true(option->common == 0 || option->common == 1);
}

static void check_default(const catalogue *all, size_t scheme, const tw_option_info *option)
{
    if (set(all, scheme, option, option->fallback) != TW_OK) fail_msg("%s: %s", all->name(scheme), tw_last_error());
    if (option->kind != TW_OPTION_REAL && option->kind != TW_OPTION_INTEGER) return;
    double value;
    assert_int_equal(sscanf(option->fallback, "%lf", &value), 1);
    assert_true(option->least <= value && value <= option->most);
}

/* A number as a spec says it: just past an end for `beyond` of -1 or 1, the end itself for 0. */
static const char *at_end(const tw_option_info *option, double end, int beyond)
{
    static char text[64];
    if (option->kind == TW_OPTION_INTEGER)
        snprintf(text, sizeof text, "%.0f", end + beyond);
    else
        snprintf(text, sizeof text, "%.17g", beyond ? nextafter(end, beyond * (double)INFINITY) : end);
    return text;
}

static void check_range(const catalogue *all, size_t scheme, const tw_option_info *option)
{
    static const char *const never[] = {"", "nan", "inf", "1x", " 1", "many"};
    if (option->kind != TW_OPTION_REAL && option->kind != TW_OPTION_INTEGER) return;
    assert_taken(all, scheme, option, at_end(option, option->least, 0));
    assert_taken(all, scheme, option, at_end(option, option->most, 0));
    assert_not_taken(all, scheme, option, at_end(option, option->least, -1));
    assert_not_taken(all, scheme, option, at_end(option, option->most, 1));
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) assert_not_taken(all, scheme, option, never[i]);
    if (option->kind == TW_OPTION_INTEGER) assert_not_taken(all, scheme, option, "1.5");
}

static void check_words(const catalogue *all, size_t scheme, const tw_option_info *option)
{
    char words[TEXT];
    if (option->kind != TW_OPTION_CHOICE && option->kind != TW_OPTION_SWITCH) return;
    snprintf(words, sizeof words, "%s", option->choices ? option->choices : "on|off");
    assert_not_taken(all, scheme, option, words);
    for (char *rest = words, *word; (word = strtok_r(rest, "|", &rest));) assert_taken(all, scheme, option, word);
    assert_not_taken(all, scheme, option, "perhaps");
    assert_not_taken(all, scheme, option, "");
}

static void check_help(const catalogue *all, size_t scheme, const tw_option_info *option)
{
    char page[PAGE], line[TEXT];
    const char *value = *option->fallback ? option->fallback : "\"\"";
    assert_true(all->help(scheme, page, sizeof page) < sizeof page);
    snprintf(line, sizeof line, "\n  %-16s %-8s %s (", option->name, value, option->help);
    if (!strstr(page, line)) fail_msg("%s: no \"%s\" in the page", all->name(scheme), line);
}

TEST(test_every_option_is_what_is_said_of_it)
{
    for (const catalogue *all = catalogues; all < catalogues + CATALOGUES; all++)
        for (size_t scheme = 0; scheme < all->count(); scheme++)
            for (size_t number = 0; number < all->option_count(scheme); number++) {
                tw_option_info option = {.struct_size = sizeof option};
                assert_ok(all->option(scheme, number, &option));
                check_texts(all, scheme, &option);
                check_default(all, scheme, &option);
                check_range(all, scheme, &option);
                check_words(all, scheme, &option);
                check_help(all, scheme, &option);
            }
}

/* ---- the lists --------------------------------------------------------------------------------------------------- */

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

TEST(test_a_page_has_nothing_else)
{
    char page[PAGE];
    for (const catalogue *all = catalogues; all < catalogues + CATALOGUES; all++)
        for (size_t scheme = 0; scheme < all->count(); scheme++) {
            all->help(scheme, page, sizeof page);
            assert_int_equal(count_lines(page), all->option_count(scheme) + 1);
        }
}

static const tw_option_info *find(const catalogue *all, const char *scheme, const char *name)
{
    static tw_option_info option;
    for (size_t i = 0; i < all->count(); i++)
        for (size_t number = 0; strcmp(all->name(i), scheme) == 0 && number < all->option_count(i); number++) {
            option = (tw_option_info){.struct_size = sizeof option};
            assert_ok(all->option(i, number, &option));
            if (strcmp(option.name, name) == 0) return &option;
        }
    fail_msg("%s has no option %s", scheme, name);
    return NULL;
}

/* Some that thinwire.h and the papers tell of, by hand. */
TEST(test_some_that_are_known)
{
    const tw_option_info *density = find(&catalogues[0], "dgc", "density");
    assert_true(density->kind == TW_OPTION_REAL && density->least == 1e-7 && density->most == 1 && !density->common);
    assert_string_equal(density->fallback, "0.04");
    assert_string_equal(find(&catalogues[0], "dgc-bold", "density")->fallback, "0.001");
    assert_string_equal(find(&catalogues[0], "dgc-bold", "min_dims")->fallback, "1");
    const tw_option_info *leftovers = find(&catalogues[0], "qsgd", "leftovers");
    assert_true(leftovers->kind == TW_OPTION_CHOICE && leftovers->common);
    assert_string_equal(leftovers->choices, "fp32|fp16|bf16");
    const tw_option_info *threads = find(&catalogues[0], "allreduce", "threads");
    assert_true(threads->kind == TW_OPTION_INTEGER && threads->least == 1 && threads->most == 7 && threads->common);
    const tw_option_info *survive = find(&catalogues[1], "prague", "survive");
    assert_true(survive->kind == TW_OPTION_SWITCH && survive->common);
    assert_string_equal(survive->fallback, "on");
}

TEST(test_there_are_no_others)
{
    for (const catalogue *all = catalogues; all < catalogues + CATALOGUES; all++) {
        tw_option_info option = {.struct_size = sizeof option};
        size_t schemes = all->count();
        assert_int_equal(all->option_count(schemes), 0);
        assert_fails(all->option(schemes, 0, &option), TW_ERROR_ARGUMENT, "no number");
        assert_fails(all->option(0, all->option_count(0), &option), TW_ERROR_ARGUMENT, "no number");
        assert_fails(all->option(0, SIZE_MAX, &option), TW_ERROR_ARGUMENT, "no number");
        assert_null(option.name);
    }
}

/* Alone and with options; part of a name, or more than one, is none. */
TEST(test_each_is_found_by_its_name)
{
    for (const catalogue *all = catalogues; all < catalogues + CATALOGUES; all++)
        for (size_t i = 0; i < all->count(); i++) {
            char spec[TEXT];
            size_t found = SIZE_MAX, with = SIZE_MAX, none = SIZE_MAX;
            snprintf(spec, sizeof spec, "%s:a=b:c", all->name(i));
            assert_true(all->find(all->name(i), &found) && found == i);
            assert_true(all->find(spec, &with) && with == i);
            spec[strlen(all->name(i))] = 'x';
            assert_false(all->find(spec, &none));
            assert_false(all->find(":", &none));
            assert_int_equal(none, SIZE_MAX);
        }
}

RUN_TESTS(NULL, NULL)
