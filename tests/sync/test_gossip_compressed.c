/* choco and cold: with nothing left out choco is dpsgd; a gamma that is too large is told, and so are estimates that
 * come apart; a loaded gossip goes on. (Where they end, test_gossip_stability.c and test_gossip_theory.c show.) */
#include "gossip_players.h"

#include <math.h>

#include "gossip.h"
#include "memory.h"

enum { WORKERS = 8, LONG = 2000, SHORT = 9 };

/* Worker `rank` has the loss sum of h/2 (w - b)^2, with an h and a b of its own for each weight. */
static double draw(int rank, size_t i, unsigned what)
{
    uint32_t words[4];
    tw_random(21, (uint64_t)rank, i, words);
    return words[what] / 4294967296.0;
}

static double curvature(int rank, size_t i)
{
    return 0.5 + 3.5 * draw(rank, i, 0);
}

static double centre(int rank, size_t i)
{
    return 6 * draw(rank, i, 1) - 3;
}

typedef struct descent {
    int steps;
    double rate;
} descent;

static tw_status descend(player *self)
{
    const descent *how = self->shared;
    values steps;
    tw_status status = players_read(self);
    for (int step = 0; status == TW_OK && step < how->steps; step++) {
        for (size_t i = 0; i < ELEMENTS; i++)
            steps.at[i] =
                (float)(-how->rate * curvature(self->rank, i) * (self->weights.at[i] - centre(self->rank, i)));
        status = players_add(self, &steps);
        if (status == TW_OK) status = players_read(self);
    }
    return status == TW_OK ? tw_comm_barrier(self->comm) : status; /* nobody leaves while others still ask */
}

static void run_descent(player *players, int workers, const char *spec, descent *how, tw_status (*part)(player *self))
{
    memset(players, 0, MOST_RANKS * sizeof *players);
    for (int rank = 0; rank < workers; rank++) players[rank].shared = how;
    players_run(players, workers, spec, part);
}

/* Far too large a gamma for so little that is sent: the run ends with a sentence, not with NaN in the weights. */
TEST(test_too_large_a_gamma_is_told)
{
    player players[MOST_RANKS];
    descent how = {LONG * 10, 0.2};
    run_descent(players, WORKERS, "cold:density=0.02,gamma=1", &how, descend);
    int told = 0;
    for (int rank = 0; rank < WORKERS; rank++) told += strstr(players[rank].text, "gamma") != NULL;
    assert_true(told > 0);
}

/* Nothing is left out, and the pull is the whole way: dpsgd, but for the rounding of the estimates. */
TEST(test_choco_without_compression_is_dpsgd)
{
    for (int workers = 1; workers <= 5; workers++) {
        player plain[MOST_RANKS], compressed[MOST_RANKS];
        descent how = {SHORT, 0.1};
        run_descent(plain, workers, "dpsgd", &how, descend);
        run_descent(compressed, workers, "choco:density=1,gamma=1,check=1", &how, descend);
        for (int rank = 0; rank < workers; rank++) {
            assert_int_equal(plain[rank].status, TW_OK);
            assert_int_equal(compressed[rank].status, TW_OK);
            for (size_t i = 0; i < ELEMENTS; i++)
                assert_float_equal(compressed[rank].weights.at[i], plain[rank].weights.at[i], 1e-5);
        }
    }
}

/* ---- estimates that come apart ----------------------------------------------------------------------------------- */

static tw_status change_an_estimate(player *self)
{
    if (self->rank == 1)
        for (size_t m = 0; m < self->gossip->memory_count; m++)
            if (strcmp(self->gossip->memories[m].what, "estimate_of_left") == 0)
                self->gossip->memories[m].values[5] += 1e-6f;
    return descend(self);
}

TEST(test_estimates_that_differ_are_noticed)
{
    player players[MOST_RANKS];
    descent how = {LONG, 0.05};
    run_descent(players, 3, "choco:check=8,gamma=0.05", &how, change_an_estimate);
    assert_int_equal(players[1].status, TW_ERROR_PACKET);
    assert_non_null(strstr(players[1].text, "estimate of rank 0"));
    assert_int_equal(players[0].status, TW_ERROR_PEER);
    assert_int_equal(players[2].status, TW_ERROR_PEER);
}

/* ---- saved and continued ----------------------------------------------------------------------------------------- */

static tw_status descend_restart_descend(player *self)
{
    tw_status status = descend(self);
    if (status == TW_OK) status = players_restart(self);
    return status == TW_OK ? descend(self) : status;
}

TEST(test_a_loaded_gossip_continues_bit_for_bit)
{
    static const char *const specs[] = {"choco:check=1", "cold:check=1"};
    for (size_t s = 0; s < 2; s++) {
        player whole[MOST_RANKS], cut[MOST_RANKS];
        descent all = {2 * SHORT, 0.1}, half = {SHORT, 0.1};
        run_descent(whole, 4, specs[s], &all, descend);
        run_descent(cut, 4, specs[s], &half, descend_restart_descend);
        for (int rank = 0; rank < 4; rank++) {
            if (cut[rank].status != TW_OK) fail_msg("%s: %s", specs[s], cut[rank].text);
            assert_memory_equal(cut[rank].weights.at, whole[rank].weights.at, sizeof whole[rank].weights.at);
        }
    }
}

/* A tenth of the elements as bits and a sign: far fewer bytes than dpsgd. */
TEST(test_compression_saves_bytes)
{
    player plain[MOST_RANKS], compressed[MOST_RANKS];
    descent how = {100, 0.01};
    run_descent(plain, 4, "dpsgd", &how, descend);
    run_descent(compressed, 4, "choco:values=sign,gamma=0.05", &how, descend);
    assert_int_equal(compressed[0].status, TW_OK);
    assert_true(compressed[0].stats.bytes_sent * 4 < plain[0].stats.bytes_sent);
}

RUN_TESTS(NULL, NULL)
