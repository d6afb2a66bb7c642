/* What all schemes share: taking a step back, and the errors of specs, tables and orders of calls. */
#include <math.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#include "compress.h"
#include "loopback.h"
#include "names.h"
#include "registry.h"
#include "scheme.h"
#include "support/cmocka.h"
#include "support/colliding_names.h"

static const tw_tensor table[] = {{"w", 2, {50, 60}}, {"b", 1, {40}}};

/* ---- errors a person makes -------------------------------------------------------------------------------------- */

static void check_spec(const char *spec, const char *says)
{
    tw_scheme *scheme = NULL;
    assert_int_equal(tw_scheme_create(spec, table, 2, 0, 4, &scheme), TW_ERROR_SPEC);
    assert_null(scheme);
    if (!strstr(tw_last_error(), says)) fail_msg("\"%s\" does not say \"%s\"", tw_last_error(), says);
}

TEST(test_bad_specs_name_the_key_and_the_range)
{
    check_spec("", "names no scheme");
    check_spec("nonsense", "no scheme \"nonsense\"; there are: allreduce, ");
    check_spec("diloco", "methods of local updates are for tw_outer_create");
    check_spec("dgc:densty=0.1", "no option \"densty\"; there are: density");
    check_spec("dgc:density=2", "density=2: density must be a number from 1e-07 to 1");
    check_spec("dgc:density=0", "density must be");
    check_spec("dgc:density=abc", "density=abc");
    check_spec("dgc:density=", "density=:");
    check_spec("dgc:density=nan", "density=nan");
    check_spec("dgc:density=0.1,density=0.2", "density is given twice");
    check_spec("dgc:density", "not of the form option=value");
    check_spec("dgc:", "not of the form");
    check_spec("dgc:nesterov=yes", "nesterov must be on or off");
    check_spec("dgc:values=fp8", "values must be one of fp32|fp16|bf16|log8|sign|lm2|ref2");
    check_spec("dgc:warmup_steps=1.5", "warmup_steps must be a whole number");
    check_spec("dgc:min_dims=9", "min_dims must be a whole number from 0 to 8");
    check_spec("dgc:leftovers=log8", "leftovers must be one of fp32|fp16|bf16");
    check_spec("allreduce:density=0.1", "allreduce: no option \"density\"");
    check_spec("allreduce:min_elements=1", "allreduce: no option \"min_elements\""); /* it compresses nothing */
    check_spec("allreduce:dense=w", "allreduce: no option \"dense\"");
}

static void check_table(const tw_tensor *tensors, size_t count, const char *says)
{
    tw_scheme *scheme = NULL;
    assert_int_equal(tw_scheme_create("dgc", tensors, count, 0, 1, &scheme), TW_ERROR_ARGUMENT);
    assert_null(scheme);
    if (!strstr(tw_last_error(), says)) fail_msg("\"%s\" does not say \"%s\"", tw_last_error(), says);
}

TEST(test_bad_tables_are_refused)
{
    tw_tensor twice[] = {{"w", 1, {3}}, {"w", 1, {4}}}, empty = {"e", 2, {3, 0}}, large = {"l", 2, {65536, 65536}};
    tw_tensor nameless = {"", 1, {3}}, deep = {"d", 9, {1}};
    tw_tensor foreign = {"caf\xe9", 1, {3}};
    check_table(twice, 2, "two tensors are called w");
    check_table(&empty, 1, "tensor e is empty");
    check_table(&large, 1, "more than 2^31");
    check_table(&nameless, 1, "a name has 1 to 255 bytes");
    check_table(&deep, 1, "9 dimensions");
    check_table(&foreign, 1, "tensor 0: its name is not UTF-8");
    tw_tensor beyond = {"b", 3, {SIZE_MAX / 2, 3, 1}};
    assert_true(tw_tensor_count(&beyond) == SIZE_MAX);
    assert_true(tw_tensor_count(&empty) == 0);
    check_table(NULL, 0, "empty");
    tw_scheme *scheme;
    assert_int_equal(tw_scheme_create("dgc", table, 2, 4, 4, &scheme), TW_ERROR_ARGUMENT);
}

/* Whoever chose the names: each is looked for, added, and moved at most twice as the index grows. */
TEST(test_large_tables_are_checked_in_linear_time)
{
    enum { MOST = 32768, PROBES = 8 * 4 };
    static char names[MOST][COLLIDING_PLACES + 1];
    static tw_tensor many[MOST];
    colliding_names all = colliding_find();
    for (unsigned i = 0; i < MOST; i++) {
        colliding_name(&all, i, names[i]);
        many[i] = (tw_tensor){names[i], 0, {0}};
    }
    for (size_t count = 128; count <= MOST; count *= 4) {
        uint64_t before = tw_names_probes();
        assert_int_equal(tw_table_check(many, count), TW_OK);
        uint64_t probes = tw_names_probes() - before;
        assert_true(probes >= count && probes <= PROBES * count);
    }
    many[MOST - 1] = many[17];
    check_table(many, MOST, names[17]);
}

TEST(test_order_is_checked)
{
    static float w[50 * 60], b[40];
    float *gradients[] = {w, b};
    tw_scheme *scheme;
    tw_round round = {0};
    assert_int_equal(tw_scheme_create("topk", table, 2, 0, 1, &scheme), TW_OK);
    assert_int_equal(tw_scheme_next(scheme, &round), TW_ERROR_ORDER);
    assert_int_equal(tw_scheme_begin(scheme, gradients, -1), TW_OK);
    assert_int_equal(tw_scheme_begin(scheme, gradients, -1), TW_ERROR_ORDER);
    assert_int_equal(tw_scheme_revert(scheme), TW_ERROR_ORDER);
    tw_scheme_destroy(scheme);
    tw_scheme_destroy(NULL);
}

TEST(test_help_lists_every_option)
{
    char page[8192];
    for (size_t s = 0; s < tw_schemes_count(); s++) {
        const tw_scheme_ops *ops = tw_scheme_at(s);
        size_t length = tw_schemes_help(s, page, sizeof page);
        assert_true(length < sizeof page && length == strlen(page));
        for (size_t i = 0; i < ops->option_count; i++) assert_non_null(strstr(page, ops->options[i].key));
        assert_non_null(strstr(page, "message_kb"));
        int leaves_some = ops->plan && !ops->every_tensor;
        assert_int_equal(strstr(page, "min_elements") != NULL, leaves_some);
        assert_int_equal(strstr(page, "leftovers") != NULL, leaves_some);
        char small[16];
        assert_int_equal(tw_schemes_help(s, small, sizeof small), length);
        assert_int_equal(tw_schemes_help(s, NULL, 0), length);
    }
}

RUN_TESTS(NULL, NULL)
