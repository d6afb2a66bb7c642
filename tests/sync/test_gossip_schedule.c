/* Who meets whom, and how fast that mixes: schedules and the averaging on vectors, against the theory of mixing
 * matrices (eigenvalues of the ring's, Lian et al. 2017; of products of matchings; expectations over random
 * permutations). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#include "gossip.h"
#include "kernels.h"
#include "support/cmocka.h"

enum { MOST = 128, WIDTH = 8, ROUNDS = 400 };

#define PI 3.14159265358979323846

/* ---- who meets whom ---------------------------------------------------------------------------------------------- */

static int is_among(const int *partners, int count, int rank)
{
    for (int i = 0; i < count; i++)
        if (partners[i] == rank) return 1;
    return 0;
}

/* Partners are members, others than the rank itself, each once, and have the rank for a partner; with equal weights the
 * mixing matrix is then symmetric, and doubly stochastic. */
static void check_round(tw_schedule *schedule, int size, const int *alive, uint64_t round)
{
    int mine[MOST], theirs[MOST];
    for (int rank = 0; rank < size; rank++) {
        int count = tw_schedule_partners(schedule, round, rank, mine);
        assert_true(count <= tw_schedule_most(schedule));
        assert_true(count == 0 || !alive || alive[rank]);
        for (int i = 0; i < count; i++) {
            int other = tw_schedule_partners(schedule, round, mine[i], theirs);
            assert_true(mine[i] >= 0 && mine[i] < size && mine[i] != rank && (!alive || alive[mine[i]]));
            assert_false(is_among(mine, i, mine[i]));
            assert_true(is_among(theirs, other, rank) && other == count);
        }
    }
}

static void test_partners_are_mutual(void **state)
{
    (void)state;
    static const int alive[9] = {1, 0, 1, 1, 0, 1, 1, 1, 0};
    for (int size = 1; size <= 17; size++)
        for (int group = 0; group <= 5; group++)
            for (int shuffled = 0; shuffled < 2 && group != 1; shuffled++) {
                tw_schedule schedule;
                const int *living = size == 9 ? alive : NULL;
                assert_int_equal(tw_schedule_create(&schedule, size, living, group, shuffled, 3), TW_OK);
                for (uint64_t round = 0; round < 40; round++) check_round(&schedule, size, living, round);
                tw_schedule_release(&schedule);
            }
}

/* With an odd number one rests in each round, and each has its turn. */
static void test_rest_goes_round(void **state)
{
    (void)state;
    for (int size = 1; size <= 9; size += 2) {
        tw_schedule schedule;
        int rests[9] = {0}, partners[9];
        assert_int_equal(tw_schedule_create(&schedule, size, NULL, 2, 0, 0), TW_OK);
        for (int round = 0; round < 3 * size; round++)
            for (int rank = 0; rank < size; rank++)
                rests[rank] += tw_schedule_partners(&schedule, (uint64_t)round, rank, partners) == 0;
        for (int rank = 0; rank < size; rank++) assert_int_equal(rests[rank], 3);
        tw_schedule_release(&schedule);
    }
}

/* A rank can step into any round: the partners do not depend on the rounds asked for before. */
static void test_rounds_come_in_any_order(void **state)
{
    (void)state;
    tw_schedule forward, backward;
    int there[64][2], here[2], differ = 0;
    assert_int_equal(tw_schedule_create(&forward, 64, NULL, 0, 1, 9), TW_OK);
    assert_int_equal(tw_schedule_create(&backward, 64, NULL, 0, 1, 9), TW_OK);
    for (uint64_t round = 0; round < 64; round++) tw_schedule_partners(&forward, round, 5, there[round]);
    for (uint64_t round = 64; round-- > 0;) {
        tw_schedule_partners(&backward, round, 5, here);
        assert_memory_equal(here, there[round], sizeof here);
        differ += memcmp(there[round], there[0], sizeof here) != 0;
    }
    assert_true(differ > 50);
    tw_schedule_release(&forward);
    tw_schedule_release(&backward);
}

static void test_another_seed_is_another_order(void **state)
{
    (void)state;
    tw_schedule one, two;
    int mine[2], other[2], differ = 0;
    assert_int_equal(tw_schedule_create(&one, 64, NULL, 0, 1, 9), TW_OK);
    assert_int_equal(tw_schedule_create(&two, 64, NULL, 0, 1, 10), TW_OK);
    for (uint64_t round = 0; round < 64; round++) {
        tw_schedule_partners(&one, round, 5, mine);
        tw_schedule_partners(&two, round, 5, other);
        differ += memcmp(mine, other, sizeof mine) != 0;
    }
    assert_true(differ > 50);
    tw_schedule_release(&one);
    tw_schedule_release(&two);
}

/* News from rank 0 by brute force: the answer is the first round that reaches the last. */
static void test_news_are_heard_in_the_round_foretold(void **state)
{
    (void)state;
    for (int size = 1; size <= 33; size += 4)
        for (int kind = 0; kind < 6; kind++) {
            tw_schedule schedule;
            uint64_t heard, start = (uint64_t)kind * 5;
            unsigned char knows[MOST] = {1}, before[MOST];
            int partners[MOST], total = 1;
            assert_int_equal(tw_schedule_create(&schedule, size, NULL, (kind / 2) * 2, kind % 2, 1), TW_OK);
            assert_int_equal(tw_schedule_heard(&schedule, start, 0, &heard), TW_OK);
            for (uint64_t round = start; round <= heard; round++) {
                assert_true(total < size || size == 1);
                memcpy(before, knows, sizeof before);
                for (int rank = 0; rank < size; rank++)
                    for (int i = tw_schedule_partners(&schedule, round, rank, partners); i-- > 0;)
                        if (before[rank]) knows[partners[i]] = 1;
                total = 0;
                for (int rank = 0; rank < size; rank++) total += knows[rank];
            }
            assert_int_equal(total, size);
            tw_schedule_release(&schedule);
        }
}

/* ---- how fast it mixes ------------------------------------------------------------------------------------------- */

/* The weights of all workers, WIDTH elements each. */
typedef struct crowd {
    int size;
    float at[MOST][WIDTH];
} crowd;

/* One round for everybody, by the very row that the communication thread uses. */
static void mix(crowd *all, tw_schedule *schedule, uint64_t round)
{
    crowd old = *all;
    for (int rank = 0; rank < all->size; rank++) {
        const float *theirs[MOST];
        int partners[MOST], count = tw_schedule_partners(schedule, round, rank, partners);
        tw_average average = {
            .theirs = theirs, .partners = (size_t)count, .sent = old.at[rank], .share = 1.0f / (float)(count + 1)};
        for (int i = 0; i < count; i++) theirs[i] = old.at[partners[i]];
        if (count > 0) tw_kernels_best()->averaging->draw(&average, all->at[rank], 0, WIDTH, 1);
    }
}

static double mean_of(const crowd *all, int i)
{
    double sum = 0;
    for (int rank = 0; rank < all->size; rank++) sum += all->at[rank][i];
    return sum / all->size;
}

/* The squared distance of all from their mean. */
static double disagreement(const crowd *all)
{
    double sum = 0;
    for (int i = 0; i < WIDTH; i++) {
        double mean = mean_of(all, i);
        for (int rank = 0; rank < all->size; rank++) sum += (all->at[rank][i] - mean) * (all->at[rank][i] - mean);
    }
    return sum;
}

static void scatter(crowd *all, uint64_t seed)
{
    uint32_t words[4];
    for (int rank = 0; rank < all->size; rank++)
        for (int i = 0; i < WIDTH; i++) {
            tw_random(seed, (uint64_t)rank, (uint64_t)i, words);
            all->at[rank][i] = (float)words[0] / 4294967296.0f - 0.5f;
        }
}

/* The slowest mode of a ring: one wave round it, at WIDTH phases. */
static void wave(crowd *all)
{
    for (int rank = 0; rank < all->size; rank++)
        for (int i = 0; i < WIDTH; i++) all->at[rank][i] = (float)cos(2 * PI * rank / all->size + PI * i / WIDTH);
}

/* The factor by which the slowest mode of a fixed schedule shrinks in two rounds. */
static double slowest_of_two_rounds(int size, int group)
{
    tw_schedule schedule;
    crowd all = {.size = size};
    assert_int_equal(tw_schedule_create(&schedule, size, NULL, group, 0, 0), TW_OK);
    wave(&all);
    uint64_t round = 0;
    while (round < 4) mix(&all, &schedule, round++);
    double before = disagreement(&all);
    while (round < 12) mix(&all, &schedule, round++);
    tw_schedule_release(&schedule);
    return pow(disagreement(&all) / before, 1.0 / 8);
}

static void assert_near(const char *what, int size, double got, double want, double tolerance)
{
    if (fabs(got - want) > tolerance * want) fail_msg("%s, %d workers: %g, not %g", what, size, got, want);
}

static void test_fixed_rings_mix_as_their_eigenvalues_say(void **state)
{
    (void)state;
    for (int size = 8; size <= MOST; size *= 2) {
        double side = cos(2 * PI / size), eigenvalue = (1 + 2 * side) / 3;
        /* 1 - factor is what training feels: held to 10 % of that, too. */
        double three = slowest_of_two_rounds(size, 0), pair = slowest_of_two_rounds(size, 2);
        assert_near("three", size, three, eigenvalue * eigenvalue, 0.1);
        assert_near("three, gap", size, 1 - three, 1 - eigenvalue * eigenvalue, 0.1);
        assert_near("pair", size, pair, side * side, 0.1);
        assert_near("pair, gap", size, 1 - pair, 1 - side * side, 0.1);
    }
}

/* Two matchings of four workers give the exact mean. */
static void test_four_workers_agree_after_two_matchings(void **state)
{
    (void)state;
    tw_schedule schedule;
    crowd all = {.size = 4};
    assert_int_equal(tw_schedule_create(&schedule, 4, NULL, 2, 0, 0), TW_OK);
    for (int rank = 0; rank < 4; rank++)
        for (int i = 0; i < WIDTH; i++) all.at[rank][i] = (float)(rank * 8 + i);
    mix(&all, &schedule, 0);
    mix(&all, &schedule, 1);
    for (int rank = 0; rank < 4; rank++)
        for (int i = 0; i < WIDTH; i++) assert_true(all.at[rank][i] == (float)(12 + i));
    tw_schedule_release(&schedule);
}

/* The mean factor by which one round of a shuffled schedule shrinks what is scattered anew before each. */
static double mean_of_one_round(int size, int group)
{
    tw_schedule schedule;
    crowd all = {.size = size};
    double before = 0, after = 0;
    assert_int_equal(tw_schedule_create(&schedule, size, NULL, group, 1, 1), TW_OK);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        scatter(&all, round);
        before += disagreement(&all);
        mix(&all, &schedule, round);
        after += disagreement(&all);
    }
    tw_schedule_release(&schedule);
    return after / before;
}

static void test_shuffled_rings_mix_alike_at_any_size(void **state)
{
    (void)state;
    for (int size = 4; size <= MOST; size *= 2) {
        assert_near("three", size, mean_of_one_round(size, 0), (size - 3) / (3.0 * (size - 1)), 0.1);
        assert_near("pair", size, mean_of_one_round(size, 2), (size - 2) / (2.0 * (size - 1)), 0.1);
    }
}

/* No schedule moves the mean, whatever the size. */
static void test_the_mean_stays(void **state)
{
    (void)state;
    for (int size = 1; size <= 17; size++)
        for (int kind = 0; kind < 10; kind++) {
            tw_schedule schedule;
            crowd all = {.size = size};
            double means[WIDTH];
            assert_int_equal(tw_schedule_create(&schedule, size, NULL, kind / 2 ? kind / 2 + 1 : 0, kind % 2, 1), 0);
            scatter(&all, 7);
            for (int i = 0; i < WIDTH; i++) means[i] = mean_of(&all, i);
            for (uint64_t round = 0; round < 100; round++) mix(&all, &schedule, round);
            for (int i = 0; i < WIDTH; i++) assert_true(fabs(mean_of(&all, i) - means[i]) < 1e-6);
            tw_schedule_release(&schedule);
        }
}

/* ---- the largest stable step ------------------------------------------------------------------------------------- */

/* Whether 16 workers descend on h/2 w^2 with alpha * h = rate. */
static int is_stable(tw_schedule *schedule, int adapt_first, float rate)
{
    crowd all = {.size = 16};
    scatter(&all, 3);
    for (uint64_t round = 0; round < 2000; round++) {
        crowd old = all;
        if (!adapt_first) mix(&all, schedule, round);
        for (int rank = 0; rank < all.size; rank++)
            for (int i = 0; i < WIDTH; i++) all.at[rank][i] -= rate * old.at[rank][i];
        if (adapt_first) mix(&all, schedule, round);
        for (int rank = 0; rank < all.size; rank++)
            if (!(fabsf(all.at[rank][0]) < 1e6f)) return 0;
    }
    return 1;
}

static double largest_stable(int group, int adapt_first)
{
    tw_schedule schedule;
    float low = 0, high = 4;
    assert_int_equal(tw_schedule_create(&schedule, 16, NULL, group, 0, 0), TW_OK);
    while (high - low > 1e-3f) {
        float middle = (low + high) / 2;
        if (is_stable(&schedule, adapt_first, middle))
            low = middle;
        else
            high = middle;
    }
    tw_schedule_release(&schedule);
    return low;
}

/* 1 + the least eigenvalue with the exchange beside the gradient: 0 for the mean over all, -1/3 for an even ring; 2
 * with the exchange behind the step. */
static void test_stability_ends_where_theory_says(void **state)
{
    (void)state;
    assert_near("all, overlapped", 16, largest_stable(16, 0), 1, 0.05);
    assert_near("ring, overlapped", 16, largest_stable(0, 0), 2.0 / 3, 0.05);
    assert_near("ring, not overlapped", 16, largest_stable(0, 1), 2, 0.05);
    assert_near("all, not overlapped", 16, largest_stable(16, 1), 2, 0.05);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partners_are_mutual),
        cmocka_unit_test(test_rest_goes_round),
        cmocka_unit_test(test_rounds_come_in_any_order),
        cmocka_unit_test(test_another_seed_is_another_order),
        cmocka_unit_test(test_news_are_heard_in_the_round_foretold),
        cmocka_unit_test(test_fixed_rings_mix_as_their_eigenvalues_say),
        cmocka_unit_test(test_four_workers_agree_after_two_matchings),
        cmocka_unit_test(test_shuffled_rings_mix_alike_at_any_size),
        cmocka_unit_test(test_the_mean_stays),
        cmocka_unit_test(test_stability_ends_where_theory_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
