/* Gossips whose ranks, wires or calls go wrong: every call ends, and says what was wrong. That the asynchronous ones go
 * on without a lost rank is test_gossip_survivors.c's subject. */
#include "gossip_players.h"

#include "gossip_registry.h"
#include "memory.h"
#include "support/assert.h"
#include "wire.h"
#include <math.h>

static const char *const specs[] = {"dpsgd",
                                    "dpsgd:order=atc",
                                    "adpsgd-fixed:survive=off",
                                    "adpsgd-fixed:mixing=three,survive=off",
                                    "prague:group=3,survive=off",
                                    "adpsgd-random:survive=off",
                                    "adpsgd-d1",
                                    "adpsgd-d1:mode=C",
                                    "choco",
                                    "cold",
                                    "gasloc:every=2,outer_lr=1,outer_momentum=0"};
enum { SPECS = sizeof specs / sizeof *specs };

static void refuse(const player *self, const char *what, tw_status got, tw_status want)
{
    if (got != want)
        fail_msg("%s: rank %d: %s (%s), not %s", what, self->rank, tw_status_name(got), self->text,
                 tw_status_name(want));
}

/* ---- steps that are not finite ----------------------------------------------------------------------------------- */

static tw_status sick_once(player *self)
{
    values steps = {0};
    for (int step = 0; step < 4; step++) {
        for (size_t i = 0; i < ELEMENTS; i++) steps.at[i] = 1;
        int sick = self->rank == 1 && step == 2;
        if (sick) steps.at[ELEMENTS - 1] = step % 2 ? NAN : INFINITY;
        tw_status status = players_add(self, &steps);
        if (status != (sick ? TW_SKIPPED : TW_OK)) return status == TW_OK ? TW_ERROR_STATE : status;
    }
    return players_finish(self);
}

TEST(test_a_step_that_is_not_finite_is_refused)
{
    for (size_t s = 0; s < SPECS; s++) {
        player players[MOST_RANKS] = {0};
        players_run(players, 4, specs[s], sick_once);
        for (int rank = 0; rank < 4; rank++) {
            refuse(&players[rank], specs[s], players[rank].status, TW_OK);
            assert_int_equal(players[rank].stats.steps, rank == 1 ? 3 : 4);
            assert_int_equal(players[rank].stats.steps_skipped, rank == 1);
            for (size_t i = 0; i < ELEMENTS; i++) assert_float_equal(players[rank].weights.at[i], 15.0f / 4, 1e-5);
        }
    }
}

/* Steps that are finite each, until the weights are not. */
static tw_status overflow(player *self)
{
    values steps;
    tw_status status = TW_OK;
    for (size_t i = 0; i < ELEMENTS; i++) steps.at[i] = 3e38f;
    for (int step = 0; status == TW_OK && step < 3; step++) status = players_add(self, &steps);
    return status == TW_OK ? players_finish(self) : status;
}

TEST(test_weights_that_overflow_end_the_gossip)
{
    for (size_t s = 0; s < SPECS; s++) {
        player players[MOST_RANKS] = {0};
        players_run(players, 3, specs[s], overflow);
        int told = 0;
        for (int rank = 0; rank < 3; rank++) {
            assert_true(players[rank].status == TW_ERROR_NONFINITE || players[rank].status == TW_ERROR_PEER);
            told += players[rank].status == TW_ERROR_NONFINITE;
        }
        assert_true(told > 0);
    }
}

/* ---- create ------------------------------------------------------------------------------------------------------ */

static tw_status no_part(player *self)
{
    (void)self;
    return TW_OK;
}

/* One rank's spec is another's or none: all are told. */
static void check_create(const char *odd, tw_status want, const char *text)
{
    player players[MOST_RANKS] = {0};
    players[1].spec = odd;
    players_run(players, 3, "adpsgd-fixed", no_part);
    for (int rank = 0; rank < 3; rank++) refuse(&players[rank], odd, players[rank].created, want);
    if (!strstr(players[1].text, text)) fail_msg("%s: \"%s\" does not say \"%s\"", odd, players[1].text, text);
}

TEST(test_create_fails_on_all_ranks_or_none)
{
    check_create("adpsgd-fixed:mixing=three", TW_ERROR_ARGUMENT, "differ");
    check_create("gossip-girl", TW_ERROR_SPEC, "there are: dpsgd");
    check_create("diloco", TW_ERROR_SPEC, "methods of local updates for tw_outer_create");
    check_create("adpsgd-random:seed=-1", TW_ERROR_SPEC, "seed");
    check_create("dpsgd:pace=free", TW_ERROR_SPEC, "pace");
    check_create("prague:group=1", TW_ERROR_SPEC, "group");
}

TEST(test_arguments_are_checked)
{
    tw_comm *comm;
    tw_gossip *gossip = NULL;
    values start = {0};
    const float *some[TENSORS] = {start.at, NULL};
    const float *const *all = (const float *const *)parts_of(&start);
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    assert_int_equal(tw_gossip_create(comm, "dpsgd", table, 0, all, &gossip), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_gossip_create(comm, "dpsgd", table, TENSORS, some, &gossip), TW_ERROR_ARGUMENT);
    start.at[3] = NAN;
    assert_int_equal(tw_gossip_create(comm, "dpsgd", table, TENSORS, all, &gossip), TW_ERROR_ARGUMENT);
    start.at[3] = 0;
    char name[] = "bias";
    const tw_tensor passing[TENSORS] = {table[0], {name, 1, {SECOND}}};
    assert_int_equal(tw_gossip_create(comm, "dpsgd", passing, TENSORS, all, &gossip), TW_OK);
    *name = 'p'; /* a table and its names are the caller's again */
    assert_fails(tw_gossip_add(gossip, some), TW_ERROR_ARGUMENT, "of bias");
    tw_gossip_destroy(gossip);
    tw_comm_destroy(comm);
}

/* Wherever memory runs out in create, it says so and leaves nothing behind. */
TEST(test_create_survives_every_failed_allocation)
{
    values start = {0};
    for (size_t s = 0; s <= SPECS; s++) {
        const char *spec = s < SPECS ? specs[s] : "prague"; /* one that survives losses */
        tw_status status = TW_ERROR_MEMORY;
        for (long n = 1; status == TW_ERROR_MEMORY; n++) {
            tw_comm *comm;
            tw_gossip *gossip = NULL;
            assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
            tw_fail_allocation(n);
            status = tw_gossip_create(comm, spec, table, TENSORS, (const float *const *)parts_of(&start), &gossip);
            tw_fail_allocation(0);
            assert_true(status == TW_OK || status == TW_ERROR_MEMORY);
            tw_gossip_destroy(gossip);
            tw_comm_destroy(comm);
        }
    }
}

/* ---- ranks that leave -------------------------------------------------------------------------------------------- */

/* Or until it seems that it never will. */
static tw_status add_until_it_fails(player *self)
{
    values steps = {0};
    tw_status status = TW_OK;
    double end = tw_clock() + 20;
    while (status == TW_OK && tw_clock() < end) status = players_add(self, &steps);
    if (status == TW_OK) status = players_add(self, &steps); /* it may have stood still since the last */
    if (status == TW_OK) return TW_OK;
    /* From then on, every call says so. */
    if (players_read(self) != status || players_add(self, &steps) != status || players_finish(self) != status)
        return TW_ERROR_STATE;
    return status;
}

static tw_status some_steps(player *self)
{
    values steps = {0};
    tw_status status = TW_OK;
    for (int step = 0; status == TW_OK && step < 3; step++) status = players_add(self, &steps);
    return status;
}

static void check_leaving(const char *spec, tw_status (*others)(player *self))
{
    player players[MOST_RANKS] = {0};
    players[1].part = some_steps;
    players_run(players, 4, spec, others);
    for (int rank = 0; rank < 4; rank++)
        if (rank != 1) refuse(&players[rank], spec, players[rank].status, TW_ERROR_PEER);
}

static tw_status some_steps_and_finish(player *self)
{
    tw_status status = some_steps(self);
    return status == TW_OK ? players_finish(self) : status;
}

/* Who hears of it first says what was wrong; the others, that it is gone. */
TEST(test_a_rank_that_adds_less_often_is_named)
{
    player players[MOST_RANKS] = {0};
    int told = 0;
    players[1].part = some_steps_and_finish;
    players_run(players, 3, "dpsgd", add_until_it_fails);
    for (int rank = 0; rank < 3; rank++) {
        int is_first = players[rank].status == TW_ERROR_PACKET;
        if (!is_first) refuse(&players[rank], "dpsgd", players[rank].status, TW_ERROR_PEER);
        told += is_first && strstr(players[rank].text, "must add as often as the others") != NULL;
    }
    assert_true(told > 0);
}

static void *leave(void *comm)
{
    tw_comm_leave(comm);
    return NULL;
}

/* Its finish waits for ranks that never come to theirs, until another of its threads ends that. Under a synchronous
 * scheme, in which all have to finish at once, it is an add. */
static tw_status wait_and_be_called_back(player *self)
{
    pthread_t other;
    const tw_gossip_ops *ops;
    tw_status status = tw_gossip_find(self->shared, &ops);
    if (status != TW_OK || pthread_create(&other, NULL, leave, self->comm) != 0) return TW_ERROR_SYSTEM;
    status = ops->exchange ? add_until_it_fails(self) : players_finish(self);
    pthread_join(other, NULL);
    return status;
}

/* And so does every call that comes later, also where the gossip's thread has not begun. */
static tw_status leave_before_the_first_call(player *self)
{
    values steps = {0};
    tw_status status = tw_comm_barrier(self->comm);
    if (status != TW_OK) return TW_ERROR_SYSTEM;
    tw_comm_leave(self->comm);
    if (players_read(self) != TW_ERROR_PEER || !strstr(tw_last_error(), "this rank has left it")) return TW_ERROR_STATE;
    if (players_add(self, &steps) != TW_ERROR_PEER || players_finish(self) != TW_ERROR_PEER) return TW_ERROR_STATE;
    return TW_ERROR_PEER;
}

TEST(test_nothing_goes_on_after_a_leave)
{
    for (size_t s = 0; s < SPECS; s++) {
        player players[MOST_RANKS] = {0};
        players_run(players, 2, specs[s], leave_before_the_first_call);
        for (int rank = 0; rank < 2; rank++) refuse(&players[rank], specs[s], players[rank].status, TW_ERROR_PEER);
    }
}

TEST(test_a_wait_is_called_back)
{
    for (size_t s = 0; s < SPECS; s++) {
        player players[MOST_RANKS] = {0};
        players[1].part = wait_and_be_called_back;
        players[1].shared = (void *)(uintptr_t)specs[s];
        players_run(players, 4, specs[s], add_until_it_fails);
        for (int rank = 0; rank < 4; rank++) refuse(&players[rank], specs[s], players[rank].status, TW_ERROR_PEER);
    }
}

TEST(test_a_rank_that_leaves_is_noticed)
{
    for (size_t s = 0; s < SPECS; s++) {
        check_leaving(specs[s], add_until_it_fails);
        check_leaving(specs[s], some_steps_and_finish);
    }
}

typedef struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int failed;
} gate;

static tw_status wait_until_the_others_failed(player *self)
{
    gate *all = self->shared;
    pthread_mutex_lock(&all->mutex);
    while (all->failed < self->size - 1) pthread_cond_wait(&all->changed, &all->mutex);
    pthread_mutex_unlock(&all->mutex);
    return TW_OK;
}

static tw_status finish_alone(player *self)
{
    gate *all = self->shared;
    tw_status status = players_finish(self);
    pthread_mutex_lock(&all->mutex);
    all->failed++;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->mutex);
    return status;
}

/* A rank that is there and never calls anything: the deadline ends the others' waiting. */
TEST(test_a_silent_rank_is_given_up_at_the_deadline)
{
    for (size_t s = 0; s < SPECS; s++) {
        gate all = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
        player players[MOST_RANKS] = {0};
        for (int rank = 0; rank < 3; rank++) {
            players[rank].shared = &all;
            players[rank].timeout = 0.2;
        }
        players[1].part = wait_until_the_others_failed;
        players_run(players, 3, specs[s], finish_alone);
        for (int rank = 0; rank < 3; rank += 2) refuse(&players[rank], specs[s], players[rank].status, TW_ERROR_PEER);
    }
}

static tw_status go_on_after_finish(player *self)
{
    values steps = {0};
    tw_status status = players_finish(self);
    if (status != TW_OK) return status;
    if (players_read(self) != TW_ERROR_ORDER || players_add(self, &steps) != TW_ERROR_ORDER) return TW_ERROR_STATE;
    return players_finish(self) == TW_ERROR_ORDER ? TW_OK : TW_ERROR_STATE;
}

TEST(test_nothing_comes_after_finish)
{
    for (size_t s = 0; s < SPECS; s++) {
        player players[MOST_RANKS] = {0};
        players_run(players, 2, specs[s], go_on_after_finish);
        refuse(&players[0], specs[s], players[0].status, TW_OK);
        refuse(&players[1], specs[s], players[1].status, TW_OK);
    }
}

/* ---- hostile messages -------------------------------------------------------------------------------------------- */

enum {
    AT_VERSION = 4,
    AT_SENDER = 8,
    AT_UNUSED = 12,
    AT_ROUND = 16,
    AT_STOP = 24,
    AT_TOLD = 32,
    AT_INTERVAL = 40,
    AT_MASK = 48,
    BARE = 64,
    FULL = BARE + 4 * ELEMENTS
};

typedef struct lie {
    const char *what;
    size_t offset;
    uint64_t value;
    int bytes;   /* of the value; 0: the message is cut to `value` bytes */
    int renewed; /* the checksum is made to fit: it is a lie, not an accident */
    tw_status want;
} lie;

static const lie lies[] = {
    {"magic", 0, 'X', 1, 1, TW_ERROR_PACKET},
    {"what is unused", AT_UNUSED, 1, 4, 1, TW_ERROR_PACKET},
    {"a damaged header", AT_ROUND, 7, 1, 0, TW_ERROR_PACKET},
    {"a damaged weight", BARE + 8, 0x3F800000, 4, 0, TW_ERROR_PACKET},
    {"version", AT_VERSION, 9, 4, 1, TW_ERROR_PACKET},
    {"sender", AT_SENDER, 0, 4, 1, TW_ERROR_PACKET},
    {"round", AT_ROUND, 1000000, 8, 1, TW_ERROR_PACKET},
    {"stop before the round", AT_STOP, 0, 8, 1, TW_ERROR_PACKET},
    {"stop that never comes", AT_STOP, (uint64_t)1 << 60, 8, 1, TW_ERROR_PACKET},
    {"told in the future", AT_TOLD, UINT64_MAX - 1, 8, 1, TW_ERROR_PACKET},
    {"interval NaN", AT_INTERVAL, 0x7FF8000000000000, 8, 1, TW_ERROR_PACKET},
    {"interval infinite", AT_INTERVAL, 0x7FF0000000000000, 8, 1, TW_ERROR_PACKET},
    {"interval negative", AT_INTERVAL, 0xBFF0000000000000, 8, 1, TW_ERROR_PACKET},
    {"a rank that is not", AT_MASK, 0x80, 1, 1, TW_ERROR_PACKET},
    {"weight NaN", BARE, 0x7FC00000, 4, 1, TW_ERROR_NONFINITE},
    {"shorter", 0, FULL - 4, 0, 0, TW_ERROR_PACKET},
    {"cut to the header", 0, BARE, 0, 0, TW_ERROR_PACKET},
    {"empty", 0, 0, 0, 0, TW_ERROR_PACKET},
};

static void tell(wire *through, unsigned char *message, size_t *size, uint32_t *check)
{
    const lie *what = through->context;
    if (what->bytes == 0)
        *size = (size_t)what->value;
    else
        memcpy(message + what->offset, &what->value, (size_t)what->bytes);
    if (what->renewed || what->bytes == 0) *check = tw_crc32c(0, message, *size);
}

static void wrap(player *self)
{
    put_between(self->shared, self->comm);
}

/* The second gossip message that a rank receives is a lie. */
TEST(test_hostile_messages_are_refused)
{
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        for (int synchronous = 0; synchronous < 2; synchronous++) {
            player players[MOST_RANKS] = {0};
            wire through = {.fatal = 2, .counted = FULL, .change = tell, .context = &lies[i]};
            players[0].wrap = wrap;
            players[0].shared = &through;
            players_run(players, 2, synchronous ? "dpsgd" : "adpsgd-random", add_until_it_fails);
            refuse(&players[0], lies[i].what, players[0].status, lies[i].want);
            if (!strstr(players[0].text, "rank 1")) fail_msg("%s: %s", lies[i].what, players[0].text); /* who sent it */
            refuse(&players[1], lies[i].what, players[1].status, TW_ERROR_PEER);
        }
}

RUN_TESTS(NULL, NULL)
