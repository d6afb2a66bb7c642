/* Reducers and gossips that come and go on one comm: what they talk under is used again, and never meets what another
 * one said. */
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>

#include "support/ranks.h"

#include "channel.h"

enum { RANKS = 3, MANY = 70000, LIVE = 6, TURNS = 400, COUNT = 64, NUMBERS = 26 /* of a reducer */ };

static const tw_tensor table[] = {{"a", 2, {8, 8}}};

typedef struct player {
    int (*program)(tw_comm *comm);
    int wrong;
    unsigned end; /* the highest number that was in use when it was through */
} player;

static void play_one(void *players, int rank, tw_comm *comm)
{
    player *me = (player *)players + rank;
    me->wrong = me->program(comm);
    me->end = tw_numbers_end(comm);
}

/* The highest number that was in use when all are through: the same on all. */
static unsigned play(int (*program)(tw_comm *comm), int size)
{
    player players[RANKS];
    for (int r = 0; r < size; r++) players[r] = (player){.program = program};
    run_on_threads_that_stay(size, play_one, players);
    for (int r = 0; r < size; r++) {
        assert_int_equal(players[r].wrong, 0);
        assert_int_equal(players[r].end, players[0].end);
    }
    return players[0].end;
}

static int make(tw_comm *comm, tw_reducer **reducer)
{
    *reducer = NULL;
    return tw_reducer_create(comm, "allreduce:overlap=off", table, 1, reducer) != TW_OK;
}

static int make_many(tw_comm *comm)
{
    int wrong = 0;
    for (int i = 0; i < MANY && !wrong; i++) {
        tw_reducer *reducer;
        wrong = make(comm, &reducer);
        tw_reducer_destroy(reducer);
    }
    return wrong;
}

/* As many as would not have had numbers over sockets, nor over MPI. */
TEST(test_reducers_come_and_go)
{
    assert_true(play(make_many, 2) <= 2 + NUMBERS);
}

/* Every rank r has r + 1 times the number of the turn. */
static int step(tw_reducer *reducer, int rank, int size, int turn)
{
    float values[COUNT];
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) values[i] = (float)((rank + 1) * turn);
    wrong += tw_reducer_submit(reducer, 0, values) != TW_OK || tw_reducer_wait(reducer) != TW_OK;
    float sum = (float)(turn * size * (size + 1)) / 2;
    for (int i = 0; i < COUNT; i++) wrong += values[i] != sum * (1.0F / (float)size) && values[i] != sum / (float)size;
    return wrong;
}

/* All make theirs in one order, and give them up in an order of their own: an interpreter's, say. A rank that is
 * through with one keeps it for as many turns as a random number says. */
static int make_and_forget(tw_comm *comm)
{
    int rank = comm->rank, wrong = 0;
    tw_reducer *live[LIVE] = {NULL}, *kept[TURNS];
    int until[TURNS] = {0};
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t words[4];
        tw_random(7, 0, (uint64_t)turn, words); /* the same on all ranks */
        unsigned place = words[0] % LIVE;
        kept[turn] = live[place];
        tw_random(7, 1 + (uint64_t)rank, (uint64_t)turn, words);
        until[turn] = turn + (int)(words[0] % 8);
        wrong += make(comm, &live[place]);
        if (wrong) break;
        for (int i = 0; i < LIVE; i++)
            if (live[i]) wrong += step(live[i], rank, comm->size, turn);
        for (int i = 0; i <= turn; i++)
            if (until[i] <= turn) {
                tw_reducer_destroy(kept[i]);
                kept[i] = NULL;
            }
    }
    for (int i = 0; i < TURNS; i++)
        if (until[i] >= TURNS) tw_reducer_destroy(kept[i]);
    for (int i = 0; i < LIVE; i++) tw_reducer_destroy(live[i]);
    return wrong;
}

TEST(test_ranks_give_up_theirs_when_they_like)
{
    assert_true(play(make_and_forget, RANKS) <= 2 + NUMBERS * (LIVE + 8 + 1));
}

static int gossip_once(tw_comm *comm, const char *spec, int steps)
{
    float values[COUNT], *weights[1] = {values};
    const float *start[1] = {values};
    tw_gossip *gossip = NULL;
    for (int i = 0; i < COUNT; i++) values[i] = 1;
    int wrong = tw_gossip_create(comm, spec, table, 1, start, &gossip) != TW_OK;
    for (int i = 0; i < steps && !wrong; i++) wrong += tw_gossip_add(gossip, start) != TW_OK;
    if (!wrong) wrong = tw_gossip_finish(gossip, weights) != TW_OK;
    for (int i = 0; i < COUNT; i++) wrong += values[i] != values[0];
    tw_gossip_destroy(gossip);
    return wrong;
}

static int make_gossips(tw_comm *comm)
{
    static const char *const specs[] = {"dpsgd", "adpsgd-random", "adpsgd-fixed", "choco", "adpsgd-random:survive=off"};
    int wrong = 0;
    for (int i = 0; i < 100 && !wrong; i++) {
        tw_reducer *reducer;
        wrong = gossip_once(comm, specs[i % 5], 2) || make(comm, &reducer) || step(reducer, comm->rank, comm->size, i);
        if (!wrong) tw_reducer_destroy(reducer);
    }
    return wrong;
}

/* A gossip has fewer numbers than a reducer here, and then the reducer's are its. */
TEST(test_gossips_come_and_go)
{
    assert_true(play(make_gossips, RANKS) <= 2 + 2 * NUMBERS);
}

/* One rank makes something else than the others. That is refused, and leaves the ranks with the same numbers. */
static int make_different(tw_comm *comm)
{
    int wrong = 0;
    for (int i = 0; i < 20 && !wrong; i++) {
        float values[COUNT] = {0};
        const float *start[1] = {values};
        tw_gossip *gossip = NULL;
        tw_reducer *reducer = NULL;
        tw_status status = comm->rank == i % 2 ? tw_gossip_create(comm, "dpsgd", table, 1, start, &gossip)
                                               : tw_reducer_create(comm, "allreduce:overlap=off", table, 1, &reducer);
        wrong = status != TW_ERROR_ARGUMENT || make(comm, &reducer) || step(reducer, comm->rank, comm->size, i);
        tw_reducer_destroy(reducer);
    }
    return wrong;
}

TEST(test_ranks_that_differ_stay_together)
{
    assert_true(play(make_different, RANKS) <= 2 + NUMBERS);
}

RUN_TESTS(NULL, NULL)
