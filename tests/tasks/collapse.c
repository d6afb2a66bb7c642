/* The guard against codes that have died: what is just healthy, what is just not, and when it looks. */
#include "collapse_guard.h"

#include "support/assert.h"

#include <string.h>

enum { GROUPS = 2, CODES = 100, ALL = GROUPS * CODES };

/* What stands behind the codes. */
enum { DISTRACTORS = ALL, SAME, HIDDEN };

/* `alive` codes of each group are used alike. */
static void use_codes(float counts[HIDDEN + 1], size_t first, size_t second)
{
    memset(counts, 0, (HIDDEN + 1) * sizeof *counts);
    for (size_t v = 0; v < first; v++) counts[v] = 6;
    for (size_t v = 0; v < second; v++) counts[CODES + v] = 9;
    counts[DISTRACTORS] = 1000;
    counts[SAME] = 80;
    counts[HIDDEN] = 100;
}

static tw_status judge(const float *counts)
{
    collapse_guard g;
    assert_ok(collapse_guard_create(GROUPS, CODES, &g));
    assert_int_equal(collapse_guard_count(&g), HIDDEN + 1);
    tw_status status = collapse_guard_judge(&g, counts, 150);
    collapse_guard_release(&g);
    return status;
}

/* Of 100 codes 4 are the fewest, in each group. */
TEST(too_few_codes_are_a_collapse)
{
    float counts[HIDDEN + 1];
    use_codes(counts, 5, 5);
    assert_ok(judge(counts));
    use_codes(counts, 100, 3);
    assert_fails(judge(counts), TW_ERROR_NONFINITE, "the 50 steps before step 150, 3.0 of 100 were in use");
    use_codes(counts, 3, 100);
    assert_int_equal(judge(counts), TW_ERROR_NONFINITE);
    use_codes(counts, 1, 1);
    assert_fails(judge(counts), TW_ERROR_NONFINITE, "1.0 of 100");
}

/* Many codes of which one has nearly everything: their number says nothing, the entropy does. With a share p of one and
 * the rest even over 99, it is p ln(1/p) + (1 - p) ln(99 / (1 - p)); for p = 0.9 that is 0.785 nats, and 2.19 codes. */
TEST(codes_count_by_their_use)
{
    float counts[HIDDEN + 1];
    use_codes(counts, CODES, CODES);
    for (size_t v = 0; v < CODES; v++) counts[v] = v ? 10 : 8910;
    assert_fails(judge(counts), TW_ERROR_NONFINITE, "2.2 of 100");
}

TEST(distractors_of_the_same_code_are_a_collapse)
{
    float counts[HIDDEN + 1];
    use_codes(counts, CODES, CODES);
    counts[SAME] = 350;
    assert_ok(judge(counts));
    counts[SAME] = 360;
    assert_fails(judge(counts), TW_ERROR_NONFINITE, "36 % of the distractors");
    counts[DISTRACTORS] = 0; /* where nothing is compared, nothing is said of it */
    assert_ok(judge(counts));
}

TEST(a_window_in_which_nothing_was_hidden_says_nothing)
{
    float counts[HIDDEN + 1] = {0};
    assert_ok(judge(counts));
}

/* A few codes are all there are. */
TEST(a_small_codebook_needs_two)
{
    collapse_guard g;
    assert_ok(collapse_guard_create(1, 8, &g));
    assert_ok(collapse_guard_judge(&g, (float[]){4, 4, 4, 0, 0, 0, 0, 0, 10, 1, 12}, 100));
    assert_int_equal(collapse_guard_judge(&g, (float[]){11, 1, 0, 0, 0, 0, 0, 0, 10, 1, 12}, 100), TW_ERROR_NONFINITE);
    collapse_guard_release(&g);
}

TEST(it_looks_when_windows_end_and_the_net_is_warm)
{
    for (uint64_t step = 0; step <= 400; step++) {
        assert_int_equal(collapse_guard_is_due(step, 0), step >= 100 && step % 50 == 0);
        assert_int_equal(collapse_guard_is_due(step, 51), step >= 200 && step % 50 == 0);
    }
}

TEST(steps_add_up_until_a_window_begins)
{
    collapse_guard g;
    const double chosen[] = {1, 0, 2, 5};
    const w2v_bert_result result = {.sums = {.distractors = 7, .same = 3, .hidden = 4}, .chosen = chosen};
    const double twice[] = {2, 0, 4, 10, 14, 6, 8}, none[7] = {0};
    assert_ok(collapse_guard_create(2, 2, &g));
    collapse_guard_add(&g, &result);
    collapse_guard_add(&g, &result);
    assert_memory_equal(g.counts, twice, sizeof twice);
    collapse_guard_clear(&g);
    assert_memory_equal(g.counts, none, sizeof none);
    collapse_guard_release(&g);
}

RUN_TESTS(NULL, NULL)
