/* What --slow and --pause mean for each rank; what they refuse is in cli_input. */
#include "slowdown.h"
#include "support.h"

#define SIZE 4
#define STEPS 100

static slowdown parse(const char *slow, const char *pause, int rank)
{
    slowdown h;
    assert_ok(slowdown_parse(slow, pause, rank, SIZE, STEPS, &h));
    return h;
}

TEST(each_rank_takes_what_is_its_own)
{
    const double factors[SIZE] = {1, 2.5, 1, 10};
    const size_t counts[SIZE] = {1, 0, 2, 0};
    for (int rank = 0; rank < SIZE; rank++) {
        slowdown h = parse("3:10,1:2.5", "2:7:0.5,0:100:3,2:1:1e-3", rank);
        assert_true(h.factor == factors[rank]);
        assert_int_equal(h.pause_count, counts[rank]);
    }
    slowdown h = parse(NULL, "2:7:0.5,0:100:3,2:1:1e-3", 2);
    assert_int_equal(h.pauses[0].step, 7);
    assert_true(h.pauses[0].seconds == 0.5);
    assert_int_equal(h.pauses[1].step, 1);
    assert_true(h.pauses[1].seconds == 1e-3);
}

TEST(without_a_list_nobody_suffers)
{
    slowdown h = parse(NULL, NULL, 0);
    assert_true(h.factor == 1);
    assert_int_equal(h.pause_count, 0);
}

TEST(a_step_takes_longer_by_factor_and_pauses)
{
    slowdown h = parse("1:3", "1:5:4,1:7:1,1:5:0.5", 1);
    assert_true(slowdown_extra(&h, 4, 0.25) == 0.5);
    assert_true(slowdown_extra(&h, 5, 0.25) == 5);
    assert_true(slowdown_extra(&h, 7, 0) == 1);
    h = parse("1:3", NULL, 0);
    assert_true(slowdown_extra(&h, 5, 0.25) == 0);
}

TEST(every_rank_refuses_the_same)
{
    slowdown h;
    for (int rank = 0; rank < SIZE; rank++) {
        assert_fails(slowdown_parse("4:10", NULL, rank, SIZE, STEPS, &h), TW_ERROR_ARGUMENT, "0 to 3");
        assert_fails(slowdown_parse("0:1,0:2", NULL, rank, SIZE, STEPS, &h), TW_ERROR_ARGUMENT, "'0:2' names a rank");
        assert_fails(slowdown_parse("3:1,1:2,03:1", NULL, rank, SIZE, STEPS, &h), TW_ERROR_ARGUMENT, "'03:1'");
        assert_fails(slowdown_parse(NULL, "1:101:1", rank, SIZE, STEPS, &h), TW_ERROR_ARGUMENT, "'1:101:1'");
    }
}

RUN_TESTS(NULL, NULL)
