/* Patterns of names: * and ? and nothing else, against a table that knows only the definition; and where they are used,
 * dense= and rates=. */
#include <string.h>
#include <thinwire/thinwire.h>

#include "patterns.h"
#include "support/cmocka.h"

enum { LONGEST = 5 };

static int fits(const char *pattern, const char *name)
{
    return tw_pattern_fits((tw_pattern){pattern, strlen(pattern)}, name);
}

/* Row by row: whether the first p of the pattern match the first n of the name. */
static int fits_by_definition(const char *pattern, const char *name)
{
    size_t patterns = strlen(pattern), names = strlen(name);
    char match[LONGEST + 1][LONGEST + 1] = {{0}};
    match[0][0] = 1;
    for (size_t p = 1; p <= patterns; p++)
        for (size_t n = 0; n <= names; n++) {
            char c = pattern[p - 1];
            if (c == '*')
                match[p][n] = match[p - 1][n] || (n && match[p][n - 1]);
            else
                match[p][n] = n && match[p - 1][n - 1] && (c == '?' || c == name[n - 1]);
        }
    return match[patterns][names];
}

/* Text number `number` over an alphabet; 0 when there is none so short. */
static int write_text(const char *alphabet, unsigned number, char text[LONGEST + 1])
{
    unsigned letters = (unsigned)strlen(alphabet), length = 0, texts = 1;
    for (; number >= texts; texts *= letters, length++) number -= texts;
    if (length > LONGEST) return 0;
    for (unsigned i = 0; i < length; i++, number /= letters) text[i] = alphabet[number % letters];
    text[length] = 0;
    return 1;
}

TEST(test_every_short_pattern_does_as_it_is_defined)
{
    char pattern[LONGEST + 1], name[LONGEST + 1];
    for (unsigned p = 0; write_text("ab*?", p, pattern); p++)
        for (unsigned n = 0; write_text("ab", n, name); n++)
            if (fits(pattern, name) != fits_by_definition(pattern, name)) fail_msg("%s against %s", pattern, name);
}

/* What fnmatch and shells would take for something else stands for itself. */
TEST(test_nothing_else_is_special)
{
    static const char *const names[] = {"layer[0].weight", "a\\b", "[!a]", "[", "{a,b}", ".hidden", "a/b", "~"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t j = 0; j < sizeof names / sizeof *names; j++) assert_int_equal(fits(names[i], names[j]), i == j);
    assert_false(fits("layer[0].weight", "layer0.weight"));
    assert_true(fits("*", ".hidden") && fits("a?b", "a/b") && fits("*\\*", "a\\b"));
}

/* With each star tried anew for each star before it, this would outlast the machine. */
TEST(test_hostile_patterns_end)
{
    char pattern[20001], name[256];
    for (int i = 0; i < 10000; i++) memcpy(pattern + 2 * i, "*a", 2);
    pattern[20000] = 0;
    memset(name, 'a', 255);
    name[255] = 0;
    assert_false(fits(pattern, name));
    memcpy(pattern + 200, "b", 2);
    assert_false(fits(pattern, name));
    pattern[200] = 0;
    assert_true(fits(pattern, name));
}

static const tw_tensor table[] = {{"layer[0].weight", 2, {20, 30}}, {"layer0.weight", 2, {20, 30}}};

static void check_plans(const char *spec, const char *first, const char *second)
{
    tw_comm *comm;
    tw_reducer *reducer = NULL;
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    if (tw_reducer_create(comm, spec, table, 2, &reducer) != TW_OK) fail_msg("%s", tw_last_error());
    assert_string_equal(tw_reducer_plan(reducer, 0), first);
    assert_string_equal(tw_reducer_plan(reducer, 1), second);
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
}

TEST(test_options_name_tensors_as_promised)
{
    check_plans("dgc:density=0.1,dense=layer[0].weight", "dense bf16: dense=layer[0].weight",
                "dgc: 60 of 600 elements");
    check_plans("scalecom:min_sent=1,rates=layer[0].weight@10", "scalecom: 60 of 600 elements, the largest of each 10",
                "scalecom: 6 of 600 elements, the largest of each 100");
}

/* A pattern longer than any name matches nothing, as long as it has no stars. */
TEST(test_misspelt_names_are_told)
{
    char spec[400] = "topk:dense=";
    tw_comm *comm;
    tw_reducer *reducer;
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    memset(spec + strlen(spec), 'l', 300);
    assert_int_equal(tw_reducer_create(comm, spec, table, 2, &reducer), TW_ERROR_SPEC);
    assert_int_equal(tw_reducer_create(comm, "topk:dense=layer[0]", table, 2, &reducer), TW_ERROR_SPEC);
    assert_non_null(strstr(tw_last_error(), "dense=layer[0]"));
    assert_int_equal(tw_reducer_create(comm, "scalecom:rates=layer[1]*@3", table, 2, &reducer), TW_ERROR_SPEC);
    assert_non_null(strstr(tw_last_error(), "rates=layer[1]*@3"));
    tw_comm_destroy(comm);
}

RUN_TESTS(NULL, NULL)
