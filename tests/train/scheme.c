/* What is asked of a spec, and what it means. */
#include "scheme.h"
#include "scheme_text.h"
#include "settings.h"
#include "support.h"
#include <math.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_scheme.h>

static void assert_in_full(const char *spec, const char *part)
{
    char *text = scheme_in_full(spec);
    assert_non_null(text);
    if (!strstr(text, part)) fail_msg("%s is in full %s, without %s", spec, text, part);
    free(text);
}

static const option_row *sync_row(void)
{
    static train_page page;
    const task_ops *ops;
    size_t at = 0;
    assert_ok(task_find("image", &ops));
    assert_ok(settings_page(ops, &page));
    while (!page.rows[at].name || strcmp(page.rows[at].name, "sync") != 0) at++;
    return &page.rows[at];
}

TEST(what_is_left_out_is_written_out)
{
    assert_in_full("dgc", ",momentum=0.90000000000000002,");
    assert_in_full("dgc:momentum=5e-1", ",momentum=0.5,");
    assert_in_full("dgc:values=fp16,density=1e-2", "dgc:density=0.01,");
    assert_in_full("dgc", ",dense=,");
    assert_in_full("dgc:dense=a*|b", ",dense=a*|b,");
    assert_in_full("adpsgd-random", "survive=on");
    assert_null(scheme_in_full("juggling:balls=3"));
}

TEST(specs_are_the_same_where_they_mean_the_same)
{
    const option_row *row = sync_row();
    assert_true(options_same(row, "dgc", "dgc:density=0.0400"));
    assert_true(options_same(row, "dgc-bold", "dgc-bold:density=1e-3"));
    assert_true(options_same(row, "dgc:density=4e-2,momentum=0.9", "dgc:momentum=.90"));
    assert_false(options_same(row, "dgc", "dgc:density=0.002"));
    assert_false(options_same(row, "dgc", "sdagc"));
    assert_false(options_same(row, "dpsgd", "dgc"));
    assert_true(options_same(row, "juggling", "juggling"));
    assert_false(options_same(row, "juggling", "juggling:balls=3"));
    assert_false(options_same(row, NULL, "dgc"));
    assert_true(options_same(row, NULL, NULL));
}

TEST(a_spec_sets_what_stands_in_it)
{
    assert_true(scheme_text_sets("dgc:density=0.1,momentum=0", "momentum"));
    assert_false(scheme_text_sets("dgc:density=0.1", "momentum"));
    assert_false(scheme_text_sets("dgc:momentums=1", "momentum"));
    assert_false(scheme_text_sets("dgc:dense=momentum=*", "momentum"));
    assert_false(scheme_text_sets("momentum=0", "momentum"));
    char *one = scheme_text_with("dgc", "momentum", "0"), *two = scheme_text_with("dgc:link=0", "momentum", "0");
    assert_string_equal(one, "dgc:momentum=0");
    assert_string_equal(two, "dgc:link=0,momentum=0");
    free(one);
    free(two);
}

TEST(numbers_are_those_of_the_scheme)
{
    assert_true(scheme_number("dgc-bold", "warmup_steps") == 400);
    assert_true(scheme_number("dgc:warmup_steps=7", "warmup_steps") == 7);
    assert_true(isnan(scheme_number("allreduce", "warmup_steps")));
    assert_true(isnan(scheme_number("juggling", "warmup_steps")));
}

static tw_status no_rounds(void *self, tw_scheme *scheme, int phase, tw_round *round)
{
    (void)self, (void)scheme, (void)phase;
    round->kind = TW_ROUND_DONE;
    return TW_OK;
}

/* Somebody else's map need not be of signs, given or not. */
TEST(signs_are_given_where_the_map_says_so)
{
    static const tw_scheme_option map[] = {
        {"map", TW_OPTION_CHOICE, 0, "flat", 0, 0, "flat|sig|round", "the projection"}};
    static const tw_scheme_definition globe = {.struct_size = sizeof globe,
                                               .name = "globe",
                                               .summary = "a map of its own",
                                               .self_size = sizeof(int),
                                               .option_size = sizeof *map,
                                               .option_count = 1,
                                               .options = map,
                                               .next = no_rounds};
    assert_ok(tw_scheme_register(&globe));
    assert_false(scheme_gives_signs("globe"));
    assert_false(scheme_gives_signs("globe:map=sig"));
    assert_true(scheme_gives_signs("demo"));
    assert_true(scheme_gives_signs("demo:k=5,map=sign"));
    assert_false(scheme_gives_signs("demo:map=none"));
    assert_false(scheme_gives_signs("dgc"));
}

TEST(what_sends_everything_alike_is_exact)
{
    for (size_t i = 0; i < tw_schemes_count(); i++) {
        const char *name = tw_schemes_name(i);
        int exact = strcmp(name, "allreduce") == 0 || strcmp(name, "fp16") == 0 || strcmp(name, "bf16") == 0;
        if (scheme_is_exact(name) != exact) fail_msg("%s", name);
    }
    assert_true(scheme_is_exact("allreduce:in_flight=4"));
    for (size_t i = 0; i < tw_gossips_count(); i++) assert_false(scheme_is_exact(tw_gossips_name(i)));
}

RUN_TESTS(NULL, NULL)
