/* The heap of timers against a list that is searched. */
#include "support/cmocka.h"

#include <thinwire/thinwire_plugin.h>

#include "timers.h"

enum { TIMERS = 60, ROUNDS = 20000 };

static const tw_timer *earliest(const tw_timer *timers)
{
    const tw_timer *best = NULL;
    for (const tw_timer *one = timers; one < timers + TIMERS; one++)
        if (one->place && (!best || one->time < best->time || (one->time == best->time && one->order < best->order)))
            best = one;
    return best;
}

TEST(test_the_earliest_comes_first)
{
    tw_timers all = {0};
    tw_timer timers[TIMERS] = {{0}};
    assert_null(tw_timers_take(&all));
    for (int i = 0; i < TIMERS; i++) assert_int_equal(tw_timers_reserve(&all, 1), TW_OK);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t words[4];
        tw_random(1, 2, round, words);
        tw_timer *one = &timers[words[0] % TIMERS];
        if (words[1] % 4 == 0) {
            tw_timers_disarm(&all, one);
            assert_int_equal(one->place, 0);
        } else if (words[1] % 4 == 1) {
            const tw_timer *expected = earliest(timers);
            assert_ptr_equal(tw_timers_take(&all), expected);
            assert_true(!expected || expected->place == 0);
        } else {
            tw_timers_arm(&all, one, words[2] % 16); /* many ties */
        }
    }
    const tw_timer *expected;
    while ((expected = earliest(timers))) assert_ptr_equal(tw_timers_take(&all), expected);
    assert_null(tw_timers_take(&all));
    tw_timers_free(&all);
}

RUN_TESTS(NULL, NULL)
