/* Reducers and gossips that come and go on one comm: what they talk under is used again, and never meets what another
 * one said. */
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>

#include "support/parts.h"
#include "support/ranks.h"

#include "channel.h"

enum { RANKS = 3, LIVE = 6, TURNS = 400, COUNT = 64 };
enum { NUMBERS = 28 /* of a reducer */, OF_GOSSIP = 6 + RANKS };

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
    const int many = in_part(2000, 70000);
    int wrong = 0;
    for (int i = 0; i < many && !wrong; i++) {
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

static int make_and_drop(tw_comm *comm)
{
    float values[COUNT] = {0};
    const float *start[1] = {values};
    int wrong = 0;
    for (int i = 0; i < 100 && !wrong; i++) {
        tw_gossip *gossip = NULL;
        wrong = tw_gossip_create(comm, "adpsgd-random", table, 1, start, &gossip) != TW_OK;
        tw_gossip_destroy(gossip);
    }
    return wrong;
}

/* Of one that nobody has used there is nothing to tell. */
TEST(test_gossips_go_unused)
{
    assert_int_equal(play(make_and_drop, RANKS), 2 + OF_GOSSIP);
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

/* ---- two at a time, of which one has hosts and all lanes ------------------------------------------------- */

/* Elements, of which two hosts send each other as many as four workers do: nobody would see that messages are mixed up.
 */
enum { WORKERS = 4, LANES = 8, PART = 256, WHOLE = 512 };

static const tw_tensor lanes[LANES] = {{"a", 1, {PART}}, {"b", 1, {PART}}, {"c", 1, {PART}}, {"d", 1, {PART}},
                                       {"e", 1, {PART}}, {"f", 1, {PART}}, {"g", 1, {PART}}, {"h", 1, {PART}}};
static const tw_tensor plain = {"whole", 1, {WHOLE}};

typedef struct worker {
    tw_reducer *hosts, *other;
    float parts[LANES][PART], whole[WHOLE];
    tw_status status;
    int wrong;
} worker;

static tw_status submit_parts(worker *self, int rank)
{
    tw_status status = TW_OK;
    for (size_t t = LANES; t-- > 0 && status == TW_OK;) {
        for (int i = 0; i < PART; i++) self->parts[t][i] = (float)((rank + 1) * (int)(t + 1));
        status = tw_reducer_submit(self->hosts, t, self->parts[t]);
    }
    return status;
}

static tw_status submit_whole(worker *self, int rank)
{
    for (int i = 0; i < WHOLE; i++) self->whole[i] = (float)(100 * (rank + 1));
    return tw_reducer_submit(self->other, 0, self->whole);
}

/* The second host begins with what the first one begins when it is through with all else. */
static tw_status reduce_both(worker *self, int rank)
{
    tw_status status = rank >= WORKERS / 2 ? submit_whole(self, rank) : TW_OK;
    if (status == TW_OK) status = submit_parts(self, rank);
    if (status == TW_OK) status = tw_reducer_wait(self->hosts);
    if (status == TW_OK && rank < WORKERS / 2) status = submit_whole(self, rank);
    return status == TW_OK ? tw_reducer_wait(self->other) : status;
}

static void work(void *context, int rank, tw_comm *comm)
{
    worker *self = (worker *)context + rank;
    self->status = tw_reducer_create(comm, "allreduce:message_kb=1,in_flight=8,per_host=2", lanes, LANES, &self->hosts);
    if (self->status == TW_OK) self->status = tw_reducer_create(comm, "allreduce", &plain, 1, &self->other);
    if (self->status == TW_OK) self->status = reduce_both(self, rank);
    for (int t = 0; t < LANES; t++)
        for (int i = 0; i < PART; i++) self->wrong += self->parts[t][i] != 2.5F * (float)(t + 1);
    for (int i = 0; i < WHOLE; i++) self->wrong += self->whole[i] != 250;
    tw_reducer_destroy(self->other);
    tw_reducer_destroy(self->hosts);
}

TEST(test_the_last_lane_between_hosts_meets_nobody_else)
{
    worker *workers = calloc(WORKERS, sizeof *workers);
    run_in_world((tw_world_options){.workers = WORKERS, .bandwidth = 1e7, .latency = 1e-4}, work, workers);
    for (int r = 0; r < WORKERS; r++) {
        assert_int_equal(workers[r].status, TW_OK);
        assert_int_equal(workers[r].wrong, 0);
    }
    free(workers);
}

RUN_TESTS(NULL, NULL)
