/* Reducers whose ranks, tables or calls go wrong: every call ends, and says what was wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#include "names.h"
#include "support/ranks.h"

enum { RANKS = 3, TENSORS = 3, WEIGHT = 600 };

static const tw_tensor table[TENSORS] = {{"a", 2, {20, 30}}, {"b", 2, {20, 30}}, {"c", 2, {20, 30}}};

/* ---- ranks as threads ------------------------------------------------------------------------------------------- */

typedef struct player player;
struct player {
    int rank;
    const char *spec;
    const tw_tensor *tensors;
    double timeout;
    void (*act)(player *self, tw_reducer *reducer);
    float gradient[TENSORS][WEIGHT];
    tw_status created, last[4]; /* what the calls returned: asserted on the test's own thread */
    char text[512];             /* of create */
};

static void play(void *players, int rank, tw_comm *comm)
{
    player *self = (player *)players + rank;
    tw_reducer *reducer = NULL;
    self->rank = rank;
    self->created = tw_reducer_create(comm, self->spec, self->tensors, TENSORS, &reducer);
    strncpy(self->text, tw_last_error(), sizeof self->text - 1);
    tw_comm_set_timeout(comm, self->timeout);             /* not for what all have to call */
    if (self->created == TW_OK) self->act(self, reducer); /* destroys the reducer */
}

static tw_status submit(player *self, tw_reducer *reducer, size_t tensors)
{
    for (size_t t = TENSORS; t-- > TENSORS - tensors;) {
        tw_status status = tw_reducer_submit(reducer, t, self->gradient[t]);
        if (status != TW_OK) return status;
    }
    return TW_OK;
}

static player *cast(void (*act)(player *self, tw_reducer *reducer), double timeout)
{
    static player players[RANKS];
    memset(players, 0, sizeof players);
    for (int r = 0; r < RANKS; r++) {
        players[r].act = act;
        players[r].timeout = timeout;
        players[r].spec = "topk:message_kb=1";
        players[r].tensors = table;
    }
    return players;
}

/* Nobody leaves before all are through. */
static void run(player *players)
{
    run_on_threads_that_stay(RANKS, play, players);
}

static void only_destroy(player *self, tw_reducer *reducer)
{
    (void)self;
    tw_reducer_destroy(reducer);
}

/* ---- create ----------------------------------------------------------------------------------------------------- */

/* One rank's mistake ends create on every rank, at once: nobody has left the group, and the deadline is far. */
TEST(test_one_bad_spec_ends_create_everywhere)
{
    player *players = cast(only_destroy, 60);
    players[1].spec = "topk:densty=0.1";
    run(players);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(players[r].created, TW_ERROR_SPEC);
        assert_non_null(strstr(players[r].text, r == 1 ? "no option \"densty\"" : "rank 1 could not make its reducer"));
    }
}

/* The last rank has another spec, another name, another shape: every rank says so. */
TEST(test_differences_end_create_everywhere)
{
    static const tw_tensor renamed[TENSORS] = {{"a", 2, {20, 30}}, {"B", 2, {20, 30}}, {"c", 2, {20, 30}}},
                           reshaped[TENSORS] = {{"a", 2, {20, 30}}, {"b", 2, {30, 20}}, {"c", 2, {20, 30}}};
    static const char *const says[] = {"differ in spec;", "differ in names of tensors;",
                                       "differ in shapes of tensors;"};
    for (int way = 0; way < 3; way++) {
        player *players = cast(only_destroy, 60);
        if (way == 0) players[2].spec = "topk:message_kb=2";
        if (way > 0) players[2].tensors = way == 1 ? renamed : reshaped;
        run(players);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(players[r].created, TW_ERROR_ARGUMENT);
            assert_non_null(strstr(players[r].text, says[way]));
        }
    }
}

static void check_table(const tw_tensor *tensors, size_t count, const char *says)
{
    tw_comm *comm;
    tw_reducer *reducer = NULL;
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    assert_int_equal(tw_reducer_create(comm, "topk:message_kb=1", tensors, count, &reducer), TW_ERROR_ARGUMENT);
    assert_null(reducer);
    if (!strstr(tw_last_error(), says)) fail_msg("\"%s\" does not say \"%s\"", tw_last_error(), says);
    tw_comm_destroy(comm);
}

TEST(test_bad_tables_are_refused)
{
    static const tw_tensor twice[] = {{"w", 2, {20, 30}}, {"other", 1, {4}}, {"w", 2, {20, 30}}},
                           nameless = {NULL, 1, {4}};
    check_table(table, 0, "empty");
    check_table(twice, 3, "two tensors are called w"); /* though each is in a message of its own */
    check_table(&nameless, 1, "a name has");
}

/* The whole table is checked once, and each message's part of it once more: no name is compared with all others. */
TEST(test_many_tensors_are_made_in_linear_time)
{
    enum { MANY = 4096, PROBES = 2 * 8 * 4 };
    static char names[MANY][16];
    static tw_tensor many[MANY];
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        many[i] = (tw_tensor){names[i], 1, {100}}; /* three in a message of 1 KiB */
    }
    tw_comm *comm;
    tw_reducer *reducer;
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    uint64_t before = tw_names_probes();
    assert_int_equal(tw_reducer_create(comm, "allreduce:message_kb=1", many, MANY, &reducer), TW_OK);
    uint64_t probes = tw_names_probes() - before;
    assert_true(probes >= 2 * MANY && probes <= PROBES * MANY);
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
}

/* ---- a step ----------------------------------------------------------------------------------------------------- */

/* Rank 0 never submits: the first message of the others fails while the rest is pending. */
static void wait_in_vain(player *self, tw_reducer *reducer)
{
    if (self->rank != 0) {
        submit(self, reducer, TENSORS);
        self->last[0] = tw_reducer_wait(reducer);
        self->last[1] = tw_reducer_wait(reducer);
        self->last[2] = tw_reducer_submit(reducer, 0, self->gradient[0]);
    }
    tw_reducer_destroy(reducer);
}

TEST(test_failure_is_final)
{
    static const char *const specs[] = {"topk:message_kb=1", "dgc:message_kb=1,clip=1",
                                        "allreduce:message_kb=1,overlap=off"};
    for (int s = 0; s < 3; s++) {
        player *players = cast(wait_in_vain, 0.2);
        for (int r = 0; r < RANKS; r++) players[r].spec = specs[s];
        run(players);
        for (int r = 1; r < RANKS; r++)
            for (int call = 0; call < 3; call++) assert_int_equal(players[r].last[call], TW_ERROR_PEER);
    }
}

/* Rank 0 destroys its reducer while its exchange thread waits for ranks that never submit. */
static void leave_the_exchange_alone(player *self, tw_reducer *reducer)
{
    if (self->rank == 0) self->last[0] = submit(self, reducer, TENSORS);
    tw_reducer_destroy(reducer);
}

TEST(test_destroy_ends_a_waiting_exchange)
{
    player *players = cast(leave_the_exchange_alone, 0.2);
    run(players);
    assert_int_equal(players[0].last[0], TW_OK);
}

/* Rank 0 gives up after the first of three messages; the others' wait ends. */
static void give_up_half_way(player *self, tw_reducer *reducer)
{
    if (self->rank == 0)
        submit(self, reducer, 1);
    else if ((self->last[0] = submit(self, reducer, TENSORS)) == TW_OK)
        self->last[0] = tw_reducer_wait(reducer);
    tw_reducer_destroy(reducer);
}

TEST(test_destroy_in_the_middle_of_a_step)
{
    player *players = cast(give_up_half_way, 0.2);
    run(players);
    for (int r = 1; r < RANKS; r++) assert_int_equal(players[r].last[0], TW_ERROR_PEER);
}

RUN_TESTS(NULL, NULL)
