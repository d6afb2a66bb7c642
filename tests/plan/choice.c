/* Which of the candidates is taken, where their times and costs are written down by hand. */
#include "plan.h"
#include "support/assert.h"

#include <string.h>

/* allreduce, bf16 and diloco with so many seconds to the same loss. */
static void fill(tw_plan *plan, double dense, double compressed, double local)
{
    *plan = (tw_plan){.count = 3};
    plan->rows[0] = (tw_plan_row){.spec = "allreduce", .kind = TW_PLAN_GRADIENTS, .seen = "exact"};
    plan->rows[1] = (tw_plan_row){.spec = "bf16", .kind = TW_PLAN_GRADIENTS, .seen = "as dense", .page = "a.md"};
    plan->rows[2] = (tw_plan_row){.spec = "diloco", .kind = TW_PLAN_UPDATES, .seen = "more", .page = "b.md"};
    plan->rows[0].target_seconds = dense;
    plan->rows[1].target_seconds = compressed;
    plan->rows[2].target_seconds = local;
    plan->dense = plan->rows;
}

static const char *choose(tw_plan *plan, int unmeasured)
{
    assert_ok(tw_plan_choose(plan, 0, unmeasured));
    return plan->chosen->spec;
}

TEST(test_the_fastest_to_the_target_is_taken)
{
    tw_plan answer;
    fill(&answer, 4, 2, 3);
    assert_string_equal(choose(&answer, 0), "bf16");
    assert_non_null(
        strstr(answer.why,
               "2 times as fast as allreduce. Measured on small networks with few seeds, in docs/a.md: as dense."));
    fill(&answer, 4, 2, 1);
    assert_string_equal(choose(&answer, 0), "diloco");
    fill(&answer, 1, 2, 3);
    assert_string_equal(choose(&answer, 0), "allreduce");
    assert_non_null(strstr(answer.why, "Nothing is faster"));
}

TEST(test_of_those_nearly_as_fast_the_first_is_taken)
{
    tw_plan answer;
    fill(&answer, 1.049, 1.02, 1);
    assert_string_equal(choose(&answer, 0), "allreduce");
    assert_non_null(strstr(answer.why, "It is exact. diloco is less than 5 % faster"));
    fill(&answer, 1.06, 1.02, 1);
    assert_string_equal(choose(&answer, 0), "bf16");
}

TEST(test_an_unknown_cost_does_not_win_unless_asked)
{
    tw_plan answer;
    fill(&answer, 4, 3, 1);
    answer.rows[2].seen = NULL;
    assert_string_equal(choose(&answer, 0), "bf16");
    assert_non_null(strstr(answer.why,
                           "diloco has faster steps, but what it costs in such a run has not been measured. "
                           "--unmeasured (in Python unmeasured=True) takes it all the same."));
    answer.seen_from[2] = 600;
    assert_string_equal(choose(&answer, 0), "bf16");
    assert_non_null(strstr(answer.why, "has not been measured, only in runs of 600 steps and more. --unm"));
    assert_string_equal(choose(&answer, 1), "diloco");
    assert_string_equal(answer.why,
                        "Its step is predicted to be 4 times as fast as that of allreduce. How many steps it takes "
                        "to the same loss has not been measured.");
}

TEST(test_who_is_left_out_is_not_taken)
{
    tw_plan answer;
    fill(&answer, 4, 0, 0);
    answer.rows[1].left_out = answer.rows[2].left_out = "a reason";
    assert_string_equal(choose(&answer, 1), "allreduce");
}

/* An outer loop takes no scheme for gradients, however fast; where nothing of the kind is known, nothing is taken. */
TEST(test_one_kind_alone_may_be_chosen)
{
    tw_plan answer;
    fill(&answer, 4, 2, 3);
    assert_ok(tw_plan_choose(&answer, TW_PLAN_UPDATES, 0));
    assert_string_equal(answer.chosen->spec, "diloco");
    assert_ok(tw_plan_choose(&answer, TW_PLAN_GRADIENTS | TW_PLAN_UPDATES, 0));
    assert_string_equal(answer.chosen->spec, "bf16");
    answer.rows[2].seen = NULL;
    assert_fails(tw_plan_choose(&answer, TW_PLAN_UPDATES, 0), TW_ERROR_ARGUMENT, "none of the candidates");
}

TEST(test_a_cost_speaks_for_longer_runs_only)
{
    const tw_candidate_cost measured = {600, 0.6, "a", "b"}, nothing = {0};
    assert_false(tw_candidate_is_known(&measured, 599));
    assert_true(tw_candidate_is_known(&measured, 600));
    assert_true(tw_candidate_is_known(&measured, 1e9));
    assert_false(tw_candidate_is_known(&nothing, 1e9));
}

RUN_TESTS(NULL, NULL)
