/* Drawing tokens: the softmax's frequencies, nothing beyond the best k, the best at temperature 0. */
#include "sampling.h"
#include "support.h"

#include <math.h>

enum { TOKENS = 6, DRAWS = 40000 };
static const float scores[TOKENS] = {1, -2, 3, 3, 0.5f, -0.25f};

static uint32_t draw(sampling s, uint64_t number)
{
    uint32_t token = TOKENS;
    assert_int_equal(sample_token(&s, scores, TOKENS, number, &token), TW_OK);
    assert_true(token < TOKENS);
    return token;
}

/* Counts stay within five standard deviations of a binomial's mean. */
static void assert_frequencies(sampling s, const int *possible)
{
    double sum = 0;
    int often[TOKENS] = {0};
    for (int i = 0; i < TOKENS; i++) sum += possible[i] ? exp(scores[i] / s.temperature) : 0;
    for (uint64_t i = 0; i < DRAWS; i++) often[draw(s, i)]++;
    for (int i = 0; i < TOKENS; i++) {
        double p = possible[i] ? exp(scores[i] / s.temperature) / sum : 0;
        assert_true(fabs(often[i] - p * DRAWS) <= 5 * sqrt(DRAWS * p * (1 - p)));
    }
}

TEST(frequencies_are_the_softmax)
{
    assert_frequencies((sampling){.temperature = 1, .seed = 1}, (int[]){1, 1, 1, 1, 1, 1});
    assert_frequencies((sampling){.temperature = 0.5, .seed = 2}, (int[]){1, 1, 1, 1, 1, 1});
    assert_frequencies((sampling){.temperature = 3, .seed = 3}, (int[]){1, 1, 1, 1, 1, 1});
}

TEST(only_the_best_are_drawn)
{
    assert_frequencies((sampling){.temperature = 2, .top_k = 3, .seed = 1}, (int[]){1, 0, 1, 1, 0, 0});
    assert_frequencies((sampling){.temperature = 2, .top_k = 1, .seed = 1}, (int[]){0, 0, 1, 0, 0, 0});
    assert_frequencies((sampling){.temperature = 2, .top_k = 99, .seed = 1}, (int[]){1, 1, 1, 1, 1, 1});
}

TEST(no_temperature_takes_the_best)
{
    for (uint64_t i = 0; i < 100; i++) assert_int_equal(draw((sampling){.temperature = 0, .seed = i}, i), 2);
}

TEST(the_seed_decides)
{
    int differ = 0;
    for (uint64_t i = 0; i < 200; i++) {
        sampling first = {.temperature = 2, .seed = 7}, second = {.temperature = 2, .seed = 8};
        assert_int_equal(draw(first, i), draw(first, i));
        differ += draw(first, i) != draw(second, i);
    }
    assert_true(differ > 50);
}

TEST(scores_that_are_not_finite)
{
    const float bad[2][2] = {{0, NAN}, {INFINITY, 0}};
    uint32_t token;
    for (int i = 0; i < 2; i++)
        assert_int_equal(sample_token(&(sampling){.temperature = 1}, bad[i], 2, 0, &token), TW_ERROR_NONFINITE);
}

RUN_TESTS(NULL, NULL)
