/* Who meets whom. How fast that mixes, and that it keeps the mean, test_gossip_theory.c shows of whole gossips. */
#include <string.h>

#include "gossip.h"
#include "support/assert.h"

enum { MOST = 40 };

static int is_among(const int *partners, int count, int rank)
{
    for (int i = 0; i < count; i++)
        if (partners[i] == rank) return 1;
    return 0;
}

/* Partners are others than the rank itself, each once, and have the rank for a partner; with equal weights the
 * mixing matrix is then symmetric, and doubly stochastic. */
static void check_round(tw_schedule *schedule, int size, uint64_t round)
{
    int mine[MOST], theirs[MOST];
    for (int rank = 0; rank < size; rank++) {
        int count = tw_schedule_partners(schedule, round, rank, mine);
        assert_true(count <= tw_schedule_most(schedule));
        for (int i = 0; i < count; i++) {
            int other = tw_schedule_partners(schedule, round, mine[i], theirs);
            assert_true(mine[i] >= 0 && mine[i] < size && mine[i] != rank);
            assert_false(is_among(mine, i, mine[i]));
            assert_true(is_among(theirs, other, rank) && other == count);
        }
    }
}

TEST(test_partners_are_mutual)
{
    for (int size = 1; size <= 17; size++)
        for (int group = 0; group <= 5; group++)
            for (int shuffled = 0; shuffled < 2 && group != 1; shuffled++) {
                tw_schedule schedule;
                assert_ok(tw_schedule_create(&schedule, size, group, shuffled, 3));
                for (uint64_t round = 0; round < 40; round++) check_round(&schedule, size, round);
                tw_schedule_release(&schedule);
            }
}

/* With an odd number one rests in each round, and each has its turn. */
TEST(test_rest_goes_round)
{
    for (int size = 1; size <= 9; size += 2) {
        tw_schedule schedule;
        int rests[9] = {0}, partners[9];
        assert_ok(tw_schedule_create(&schedule, size, 2, 0, 0));
        for (int round = 0; round < 3 * size; round++)
            for (int rank = 0; rank < size; rank++)
                rests[rank] += tw_schedule_partners(&schedule, (uint64_t)round, rank, partners) == 0;
        for (int rank = 0; rank < size; rank++) assert_int_equal(rests[rank], 3);
        tw_schedule_release(&schedule);
    }
}

/* A rank can step into any round: the partners do not depend on the rounds asked for before. */
TEST(test_rounds_come_in_any_order)
{
    tw_schedule forward, backward;
    int there[64][2], here[2], differ = 0;
    assert_ok(tw_schedule_create(&forward, 64, 0, 1, 9));
    assert_ok(tw_schedule_create(&backward, 64, 0, 1, 9));
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

TEST(test_another_seed_is_another_order)
{
    tw_schedule one, two;
    int mine[2], other[2], differ = 0;
    assert_ok(tw_schedule_create(&one, 64, 0, 1, 9));
    assert_ok(tw_schedule_create(&two, 64, 0, 1, 10));
    for (uint64_t round = 0; round < 64; round++) {
        tw_schedule_partners(&one, round, 5, mine);
        tw_schedule_partners(&two, round, 5, other);
        differ += memcmp(mine, other, sizeof mine) != 0;
    }
    assert_true(differ > 50);
    tw_schedule_release(&one);
    tw_schedule_release(&two);
}

/* The neighbours of ranks 0 and 1 tell the 12 rings of five apart. Each comes about 1000 times in 12000 rounds; a
 * deviation is 30, so 200 is beyond 6 of them. */
TEST(test_every_ring_is_as_likely)
{
    int often[1 << 10] = {0}, rings = 0;
    tw_schedule schedule;
    assert_ok(tw_schedule_create(&schedule, 5, 0, 1, 1));
    for (uint64_t round = 0; round < 12000; round++) {
        int of_two[2][2], key = 0;
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(tw_schedule_partners(&schedule, round, rank, of_two[rank]), 2);
            key |= (1 << of_two[rank][0] | 1 << of_two[rank][1]) << 5 * rank;
        }
        often[key]++;
    }
    for (int key = 0; key < 1 << 10; key++) {
        if (often[key]) assert_in_range(often[key], 800, 1200);
        rings += often[key] > 0;
    }
    assert_int_equal(rings, 12);
    tw_schedule_release(&schedule);
}

/* News from rank 0 by brute force: the answer is the first round that reaches the last. */
TEST(test_news_are_heard_in_the_round_foretold)
{
    for (int size = 1; size <= 33; size += 4)
        for (int kind = 0; kind < 6; kind++) {
            tw_schedule schedule;
            uint64_t heard, start = (uint64_t)kind * 5;
            unsigned char knows[MOST] = {1}, before[MOST];
            int partners[MOST], total = 1;
            assert_ok(tw_schedule_create(&schedule, size, (kind / 2) * 2, kind % 2, 1));
            assert_ok(tw_schedule_heard(&schedule, start, 0, &heard));
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

RUN_TESTS(NULL, NULL)
