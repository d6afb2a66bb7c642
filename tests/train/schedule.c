/* Learning rates against their closed forms. */
#include "schedule.h"
#include "support.h"

#include <math.h>

static schedule parse(const char *text, uint64_t warmup)
{
    schedule s;
    assert_ok(schedule_parse(text, 0.5, warmup, 100, 10, &s));
    return s;
}

static void assert_rate(const schedule *s, uint64_t step, double rate)
{
    double found = schedule_rate(s, step);
    if (fabs(found - rate) > 1e-15) fail_msg("step %llu: %.17g, not %.17g", (unsigned long long)step, found, rate);
}

TEST(constant_stays)
{
    schedule s = parse("constant", 0);
    for (uint64_t t = 0; t < 100; t++) assert_rate(&s, t, 0.5);
}

TEST(warmup_rises_linearly_and_ends_at_the_rate)
{
    const char *const forms[] = {"constant", "cosine", "step"};
    for (int form = 0; form < 3; form++) {
        schedule s = parse(forms[form], 20);
        for (uint64_t t = 0; t < 20; t++) assert_rate(&s, t, 0.5 * (double)(t + 1) / 20);
        assert_rate(&s, 20, 0.5);
    }
}

TEST(cosine_passes_its_known_points)
{
    schedule s = parse("cosine", 20);
    assert_rate(&s, 20, 0.5);
    assert_rate(&s, 40, 0.5 * 0.5 * (1 + sqrt(0.5)));
    assert_rate(&s, 60, 0.25);
    assert_rate(&s, 80, 0.5 * 0.5 * (1 - sqrt(0.5)));
    assert_rate(&s, 100, 0);
    for (uint64_t t = 21; t < 100; t++) assert_true(schedule_rate(&s, t) < schedule_rate(&s, t - 1));
}

TEST(step_falls_at_fractions_and_epochs)
{
    schedule s = parse("step", 0);
    assert_rate(&s, 49, 0.5);
    assert_rate(&s, 50, 0.05);
    assert_rate(&s, 74, 0.05);
    assert_rate(&s, 75, 0.005);
    s = parse("step:3,0.9,7", 0);
    assert_rate(&s, 29, 0.5);
    assert_rate(&s, 30, 0.05);
    assert_rate(&s, 70, 0.005);
    assert_rate(&s, 89, 0.005);
    assert_rate(&s, 90, 0.0005);
}

/* Zaremba's small network: full rate for four epochs, half of the one before in each later one. */
TEST(decay_multiplies_at_the_end_of_epochs)
{
    schedule s = parse("decay:0.5,4", 0);
    double rate = 0.5;
    for (uint64_t t = 0; t < 100; t++) {
        if (t >= 40 && t % 10 == 0) rate *= 0.5;
        assert_rate(&s, t, rate);
    }
    s = parse("decay:0.5,0", 0);
    assert_rate(&s, 0, 0.25);
}

TEST(a_plateau_falls_only_where_nothing_was_gained)
{
    const double losses[] = {5, 4, 4.5, 3, 3, 2, NAN};
    const double rates[] = {0.5, 0.5, 0.125, 0.125, 0.03125, 0.03125, 0.0078125};
    schedule s = parse("plateau:0.25", 0);
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        schedule_observe(&s, losses[i]);
        assert_rate(&s, 50, rates[i]);
    }
    assert_true(s.best_loss == 2);
}

TEST(isqrt_falls_from_the_end_of_its_warm_up)
{
    schedule own = parse("isqrt", 8), share = parse("isqrt:0.08", 3);
    assert_rate(&own, 3, 0.25);
    assert_rate(&own, 7, 0.5);
    assert_rate(&own, 31, 0.25);
    for (uint64_t t = 0; t < 100; t++) assert_rate(&share, t, schedule_rate(&own, t));
    schedule s;
    assert_fails(schedule_parse("isqrt", 0.5, 0, 100, 10, &s), TW_ERROR_ARGUMENT, "--warmup is 0");
}

TEST(bad_texts_are_refused_by_name)
{
    const char *const bad[] = {"linear",        "",
                               "stepwise",      "step:",
                               "step:0.5,",     "decay:0.5",
                               "decay:2,1",     "decay:0.5,1.5",
                               "decay:0.5,1,",  "plateau:",
                               "plateau:0",     "plateau:1",
                               "plateau:0.5,1", "isqrt:",
                               "isqrt:1",       "isqrt:0.5x",
                               "isqrtx",        "step:x",
                               "step:-1",       "step:0.5;0.7",
                               "step:nan",      "step:1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        schedule s;
        assert_fails(schedule_parse(bad[i], 0.5, 0, 100, 10, &s), TW_ERROR_ARGUMENT, bad[i]);
    }
}

RUN_TESTS(NULL, NULL)
