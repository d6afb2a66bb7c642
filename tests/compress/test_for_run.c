/* What follows from the length of a run: the rule, and what it leaves to whoever gives the spec. */
#include <stdio.h>
#include <string.h>
#include <thinwire/thinwire.h>

#include "support/cmocka.h"

static void check(const char *spec, uint64_t steps, const char *expected)
{
    char text[128];
    assert_int_equal(tw_spec_for_run(spec, steps, text, sizeof text), strlen(expected));
    assert_string_equal(text, expected);
}

/* (2000/steps)^2, two digits of it, and a warm-up of a twentieth of the run. */
TEST(short_runs_are_denser)
{
    check("dgc", 0, "dgc:density=0.25,warmup_steps=0");
    check("dgc", 100, "dgc:density=0.25,warmup_steps=5");
    check("dgc", 4000, "dgc:density=0.25,warmup_steps=200");
    check("dgc", 4685, "dgc:density=0.18,warmup_steps=234");
    check("sdagc", 7999, "sdagc:density=0.063,warmup_steps=399");
    check("sdagc", 20000, "sdagc:density=0.01,warmup_steps=400");
    check("sdagc", 63246, "sdagc:density=0.001,warmup_steps=400");
    check("dgc", UINT64_MAX, "dgc:density=0.001,warmup_steps=400");
    check("dgc-adam", 600, "dgc-adam:density=0.04,warmup_steps=400");
    check("dgc-adam", UINT64_MAX, "dgc-adam:density=0.04,warmup_steps=1000000000");
    check("onebit-adam", 600, "onebit-adam:warmup_steps=120");
    check("powersgd:rank=1", 19, "powersgd:rank=1,warmup_steps=0");
    check("powersgd", 40, "powersgd:warmup_steps=2");
    check("powersgd", 99, "powersgd:warmup_steps=4");
    check("powersgd:rank=16", UINT64_MAX, "powersgd:rank=16,warmup_steps=5");
    check("onebit-adam:momentum=0.8", UINT64_MAX, "onebit-adam:momentum=0.8,warmup_steps=1000000000");
}

static const char *default_of(size_t scheme, const char *name)
{
    static tw_option_info option;
    for (size_t i = 0; i < tw_schemes_option_count(scheme); i++) {
        option = (tw_option_info){.struct_size = sizeof option};
        assert_int_equal(tw_schemes_option(scheme, i, &option), TW_OK);
        if (strcmp(option.name, name) == 0) return option.fallback;
    }
    return NULL;
}

/* Who cannot say how long the run is has what suits 10,000 steps. Every other scheme is as it is, a bold one too. */
TEST(the_defaults_are_of_one_length)
{
    int follow = 0;
    for (size_t i = 0; i < tw_schemes_count(); i++) {
        const char *name = tw_schemes_name(i);
        char text[128], expected[128];
        tw_spec_for_run(name, 10000, text, sizeof text);
        if (strcmp(text, name) == 0) continue;
        const char *density = default_of(i, "density");
        snprintf(expected, sizeof expected, "%s:%s%s%s", name, density ? "density=" : "", density ? density : "",
                 density ? "," : "");
        strcat(expected, "warmup_steps=");
        strcat(expected, default_of(i, "warmup_steps"));
        assert_string_equal(text, expected);
        follow++;
    }
    assert_int_equal(follow, 5);
}

TEST(what_is_given_stays)
{
    check("dgc:momentum=0", 10000, "dgc:momentum=0,density=0.04,warmup_steps=400");
    check("dgc:density=0.5", 640, "dgc:density=0.5,warmup_steps=32");
    check("dgc:warmup_steps=3", 10000, "dgc:warmup_steps=3,density=0.04");
    check("dgc:warmup_steps=3,density=1e-3", 640, "dgc:warmup_steps=3,density=1e-3");
    check("dgc:warmup_density=0.5", 10000, "dgc:warmup_density=0.5,density=0.04,warmup_steps=400");
    check("dgc:", 10000, "dgc:density=0.04,warmup_steps=400");
    check("powersgd:", 40, "powersgd:warmup_steps=2");
    check("topk:", 40, "topk:");
    check("dgc-bold", 320, "dgc-bold");
    check("dpsgd", 320, "dpsgd");
    check("no such scheme", 320, "no such scheme");
    check("", 320, "");
}

TEST(a_small_buffer_has_its_beginning)
{
    char text[9];
    assert_int_equal(tw_spec_for_run("dgc", 10000, text, sizeof text), strlen("dgc:density=0.04,warmup_steps=400"));
    assert_string_equal(text, "dgc:dens");
}

RUN_TESTS(NULL, NULL)
