/* Which of the candidates is taken, where their times and costs are written down by hand. */
#include "plan.h"
#include "support/assert.h"

#include <string.h>

static const candidate_cost none = {0, 0, "exact", "a page"}, half = {0, 0.5, "half as many again", "a page"};

/* allreduce, bf16 and diloco with so many seconds to a step. */
static void fill(plan *answer, double dense, double compressed, double local)
{
    *answer = (plan){.count = 3};
    answer->rows[0] = (plan_row){.spec = "allreduce", .cost = &none, .target_seconds = dense};
    answer->rows[1] = (plan_row){.spec = "bf16", .cost = &none, .target_seconds = compressed};
    answer->rows[2] = (plan_row){.spec = "diloco", .cost = &half, .target_seconds = local};
    answer->dense = answer->rows;
}

static const char *choose(plan *answer, int unmeasured)
{
    plan_choose(answer, unmeasured);
    return answer->chosen->spec;
}

static void test_the_fastest_to_the_target_is_taken(void **state)
{
    plan answer;
    (void)state;
    fill(&answer, 4, 2, 3);
    assert_string_equal(choose(&answer, 0), "bf16");
    assert_non_null(strstr(answer.why, "2 times as fast as allreduce"));
    fill(&answer, 4, 2, 1);
    assert_string_equal(choose(&answer, 0), "diloco");
    fill(&answer, 1, 2, 3);
    assert_string_equal(choose(&answer, 0), "allreduce");
    assert_non_null(strstr(answer.why, "Nothing is faster"));
}

static void test_of_those_nearly_as_fast_the_first_is_taken(void **state)
{
    plan answer;
    (void)state;
    fill(&answer, 1.049, 1.02, 1);
    assert_string_equal(choose(&answer, 0), "allreduce");
    assert_non_null(strstr(answer.why, "It is exact. diloco is less than 5 % faster"));
    fill(&answer, 1.06, 1.02, 1);
    assert_string_equal(choose(&answer, 0), "bf16");
}

static void test_an_unknown_cost_does_not_win_unless_asked(void **state)
{
    plan answer;
    (void)state;
    fill(&answer, 4, 3, 1);
    answer.rows[2].cost = NULL;
    assert_string_equal(choose(&answer, 0), "bf16");
    assert_non_null(strstr(answer.why, "diloco is faster, but what it costs in such a run has not been measured"));
    assert_string_equal(choose(&answer, 1), "diloco");
}

static void test_who_is_left_out_is_not_taken(void **state)
{
    plan answer;
    (void)state;
    fill(&answer, 4, 0, 0);
    strcpy(answer.rows[1].left_out, "a reason");
    strcpy(answer.rows[2].left_out, "a reason");
    assert_string_equal(choose(&answer, 1), "allreduce");
}

static void test_a_cost_speaks_for_longer_runs_only(void **state)
{
    const candidate_cost measured = {600, 0.6, "a", "b"}, nothing = {0};
    (void)state;
    assert_false(candidate_is_known(&measured, 599));
    assert_true(candidate_is_known(&measured, 600));
    assert_true(candidate_is_known(&measured, 1e9));
    assert_false(candidate_is_known(&nothing, 1e9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_fastest_to_the_target_is_taken),
        cmocka_unit_test(test_of_those_nearly_as_fast_the_first_is_taken),
        cmocka_unit_test(test_an_unknown_cost_does_not_win_unless_asked),
        cmocka_unit_test(test_who_is_left_out_is_not_taken),
        cmocka_unit_test(test_a_cost_speaks_for_longer_runs_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
