/* Reducers and gossips that come and go on one comm: what they talk under is used again, and never meets what another
 * one said. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>

#include "support/cmocka.h"

#include "channel.h"

enum { RANKS = 3, MANY = 70000, LIVE = 6, TURNS = 400, COUNT = 64, NUMBERS = 26 /* of a reducer */ };

static const tw_tensor table[] = {{"a", 2, {8, 8}}};

typedef struct player {
    pthread_t thread;
    tw_comm *comm;
    int wrong;
} player;

/* The highest number that was in use when all are through. */
static unsigned play(void *(*program)(void *), int size)
{
    tw_comm *comms[RANKS];
    player players[RANKS];
    unsigned end = 0;
    assert_int_equal(tw_comm_create_threads(size, comms), TW_OK);
    for (int r = 0; r < size; r++) {
        players[r] = (player){.comm = comms[r]};
        assert_int_equal(pthread_create(&players[r].thread, NULL, program, &players[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(players[r].thread, NULL);
    for (int r = 0; r < size; r++) {
        assert_int_equal(players[r].wrong, 0);
        assert_true(r == 0 || end == tw_numbers_end(comms[r]));
        end = tw_numbers_end(comms[r]);
    }
    for (int r = 0; r < size; r++) tw_comm_destroy(comms[r]);
    return end;
}

static int make(player *me, tw_reducer **reducer)
{
    *reducer = NULL;
    return tw_reducer_create(me->comm, "allreduce:overlap=off", table, 1, reducer) != TW_OK;
}

static void *make_many(void *argument)
{
    player *me = argument;
    for (int i = 0; i < MANY && !me->wrong; i++) {
        tw_reducer *reducer;
        me->wrong = make(me, &reducer);
        tw_reducer_destroy(reducer);
    }
    return NULL;
}

/* As many as would not have had numbers over sockets, nor over MPI. */
static void test_reducers_come_and_go(void **state)
{
    (void)state;
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
static void *make_and_forget(void *argument)
{
    player *me = argument;
    int rank = me->comm->rank;
    tw_reducer *live[LIVE] = {NULL}, *kept[TURNS];
    int until[TURNS] = {0};
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t words[4];
        tw_random(7, 0, (uint64_t)turn, words); /* the same on all ranks */
        unsigned place = words[0] % LIVE;
        kept[turn] = live[place];
        tw_random(7, 1 + (uint64_t)rank, (uint64_t)turn, words);
        until[turn] = turn + (int)(words[0] % 8);
        me->wrong += make(me, &live[place]);
        if (me->wrong) break;
        for (int i = 0; i < LIVE; i++)
            if (live[i]) me->wrong += step(live[i], rank, me->comm->size, turn);
        for (int i = 0; i <= turn; i++)
            if (until[i] <= turn) {
                tw_reducer_destroy(kept[i]);
                kept[i] = NULL;
            }
    }
    for (int i = 0; i < TURNS; i++)
        if (until[i] >= TURNS) tw_reducer_destroy(kept[i]);
    for (int i = 0; i < LIVE; i++) tw_reducer_destroy(live[i]);
    return NULL;
}

static void test_ranks_give_up_theirs_when_they_like(void **state)
{
    (void)state;
    assert_true(play(make_and_forget, RANKS) <= 2 + NUMBERS * (LIVE + 8 + 1));
}

static int gossip_once(player *me, const char *spec, int steps)
{
    float values[COUNT], *weights[1] = {values};
    const float *start[1] = {values};
    tw_gossip *gossip = NULL;
    for (int i = 0; i < COUNT; i++) values[i] = 1;
    int wrong = tw_gossip_create(me->comm, spec, table, 1, start, &gossip) != TW_OK;
    for (int i = 0; i < steps && !wrong; i++) wrong += tw_gossip_add(gossip, start) != TW_OK;
    if (!wrong) wrong = tw_gossip_finish(gossip, weights) != TW_OK;
    for (int i = 0; i < COUNT; i++) wrong += values[i] != values[0];
    tw_gossip_destroy(gossip);
    return wrong;
}

static void *make_gossips(void *argument)
{
    static const char *const specs[] = {"dpsgd", "adpsgd-random", "adpsgd-fixed", "choco", "adpsgd-random:survive=off"};
    player *me = argument;
    for (int i = 0; i < 100 && !me->wrong; i++) {
        tw_reducer *reducer;
        me->wrong = gossip_once(me, specs[i % 5], 2);
        if (!me->wrong) me->wrong = make(me, &reducer) || step(reducer, me->comm->rank, me->comm->size, i);
        if (!me->wrong) tw_reducer_destroy(reducer);
    }
    return NULL;
}

/* A gossip has fewer numbers than a reducer here, and then the reducer's are its. */
static void test_gossips_come_and_go(void **state)
{
    (void)state;
    assert_true(play(make_gossips, RANKS) <= 2 + 2 * NUMBERS);
}

/* One rank makes something else than the others. That is refused, and leaves the ranks with the same numbers. */
static void *make_different(void *argument)
{
    player *me = argument;
    for (int i = 0; i < 20 && !me->wrong; i++) {
        float values[COUNT] = {0};
        const float *start[1] = {values};
        tw_gossip *gossip = NULL;
        tw_reducer *reducer = NULL;
        tw_status status = me->comm->rank == i % 2
                               ? tw_gossip_create(me->comm, "dpsgd", table, 1, start, &gossip)
                               : tw_reducer_create(me->comm, "allreduce:overlap=off", table, 1, &reducer);
        me->wrong =
            status != TW_ERROR_ARGUMENT || make(me, &reducer) || step(reducer, me->comm->rank, me->comm->size, i);
        tw_reducer_destroy(reducer);
    }
    return NULL;
}

static void test_ranks_that_differ_stay_together(void **state)
{
    (void)state;
    assert_true(play(make_different, RANKS) <= 2 + NUMBERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reducers_come_and_go),
        cmocka_unit_test(test_ranks_give_up_theirs_when_they_like),
        cmocka_unit_test(test_gossips_come_and_go),
        cmocka_unit_test(test_ranks_that_differ_stay_together),
    };
    return cmocka_run_group_tests_name("numbers", tests, NULL, NULL);
}
