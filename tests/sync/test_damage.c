/* One bit of one message is turned over on its way, in the message or in the word beside it: whoever receives it says
 * so, and from whom; nobody takes a wrong value for a right one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_clusters.h>
#include <thinwire/thinwire_outer.h>

#include "error.h"
#include "support/ranks.h"
#include "wire.h"

enum { RANKS = 3, VICTIM = 1, COUNT = 600, TENSORS = 2, STEPS = 2, FLIPS = 100 };

static const tw_tensor table[TENSORS] = {{"weight", 2, {20, 30}}, {"bias", 1, {20}}};

/* Every other time in the word: it is short, and chance would pass it by. */
static void damage(wire *through, unsigned char *message, size_t *size, uint32_t *check)
{
    uint32_t random[4];
    tw_random(through->seed, 0, 0, random);
    through->in_word = *size == 0 || random[0] % 2;
    if (through->in_word)
        *check ^= 1u << random[1] % 32;
    else
        message[random[2] % *size] ^= (unsigned char)(1u << random[1] % 8);
}

/* --- what the ranks do ------------------------------------------------------------------------------------------- */

/* Writes a checksum of all that the call has brought. */
typedef tw_status (*act)(tw_comm *comm, const char *spec, uint32_t *brought);

static tw_status call_barrier(tw_comm *comm, const char *spec, uint32_t *brought)
{
    (void)spec;
    *brought = 0;
    return tw_comm_barrier(comm);
}

static void fill(float *values, size_t count, int rank, uint64_t salt)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t random[4];
        tw_random(salt, (uint64_t)rank, i, random);
        values[i] = (float)random[0] * 0x1p-32f - 0.5f;
    }
}

static tw_status allreduce(tw_comm *comm, float *values, size_t count, uint32_t *brought)
{
    fill(values, count, tw_comm_rank(comm), 1);
    TW_TRY(tw_comm_allreduce(comm, values, count));
    *brought = tw_crc32c(0, values, count * sizeof *values);
    return TW_OK;
}

static tw_status call_allreduce(tw_comm *comm, const char *spec, uint32_t *brought)
{
    float values[COUNT];
    (void)spec;
    return allreduce(comm, values, COUNT, brought);
}

/* It goes in segments, whose sums are passed on with the checksum they came with. */
static tw_status call_large_allreduce(tw_comm *comm, const char *spec, uint32_t *brought)
{
    enum { LARGE = 50000, SEGMENT = 16384 };
    float values[LARGE];
    (void)spec;
    comm->channel->segment = SEGMENT;
    return allreduce(comm, values, LARGE, brought);
}

static tw_status call_allgather(tw_comm *comm, const char *spec, uint32_t *brought)
{
    float own[COUNT], all[RANKS * COUNT];
    (void)spec;
    fill(own, COUNT, tw_comm_rank(comm), 2);
    TW_TRY(tw_comm_allgather(comm, own, sizeof own, all));
    *brought = tw_crc32c(0, all, sizeof all);
    return TW_OK;
}

static tw_status call_alltoall(tw_comm *comm, const char *spec, uint32_t *brought)
{
    float own[RANKS][COUNT];
    const void *out[RANKS], *const *packets;
    size_t out_sizes[RANKS];
    const size_t *sizes;
    (void)spec;
    for (int r = 0; r < RANKS; r++) {
        fill(own[r], COUNT, tw_comm_rank(comm), 4 + (uint64_t)r);
        out[r] = own[r];
        out_sizes[r] = sizeof own[r];
    }
    TW_TRY(tw_channel_alltoall(comm->channel, out, out_sizes, sizeof own[0], &packets, &sizes));
    *brought = 0;
    for (int r = 0; r < RANKS; r++) *brought = tw_crc32c(*brought, packets[r], sizes[r]);
    return TW_OK;
}

static tw_status call_broadcast(tw_comm *comm, const char *spec, uint32_t *brought)
{
    float values[COUNT];
    (void)spec;
    fill(values, COUNT, tw_comm_rank(comm), 3);
    TW_TRY(tw_comm_broadcast(comm, 0, values, sizeof values));
    *brought = tw_crc32c(0, values, sizeof values);
    return TW_OK;
}

static tw_status call_broadcast_packed(tw_comm *comm, const char *spec, uint32_t *brought)
{
    float values[COUNT];
    (void)spec;
    fill(values, COUNT, tw_comm_rank(comm), 3);
    TW_TRY(tw_comm_broadcast_packed(comm, 0, values, COUNT, sizeof *values));
    *brought = tw_crc32c(0, values, sizeof values);
    return TW_OK;
}

/* The first rank's model is whole, and that of the others is cut among them. */
static tw_status call_clusters(tw_comm *comm, const char *spec, uint32_t *brought)
{
    tw_clusters *clusters = NULL;
    float values[COUNT], *parts[] = {values};
    uint64_t rank = (uint64_t)tw_comm_rank(comm), share = COUNT / (RANKS - 1);
    const tw_range range = {rank ? (rank - 1) * share : 0, rank ? share : (RANKS - 1) * share};
    (void)spec;
    fill(values, COUNT, (int)rank, 5);
    TW_TRY(tw_clusters_create(comm, rank > 0, (RANKS - 1) * share, &range, 1, &clusters));
    tw_status status = tw_clusters_average(clusters, parts);
    tw_clusters_destroy(clusters);
    *brought = tw_crc32c(0, values, sizeof values);
    return status;
}

static tw_status take_step(tw_reducer *reducer, int rank, uint64_t step, uint32_t *brought)
{
    float weight[COUNT], bias[20];
    fill(weight, COUNT, rank, 10 + step);
    fill(bias, 20, rank, 20 + step);
    TW_TRY(tw_reducer_submit(reducer, 1, bias));
    TW_TRY(tw_reducer_submit(reducer, 0, weight));
    TW_TRY(tw_reducer_wait(reducer));
    *brought = tw_crc32c(tw_crc32c(*brought, weight, sizeof weight), bias, sizeof bias);
    return TW_OK;
}

static tw_status call_reducer(tw_comm *comm, const char *spec, uint32_t *brought)
{
    tw_reducer *reducer = NULL;
    char text[512];
    TW_TRY(tw_reducer_create(comm, spec, table, TENSORS, &reducer));
    tw_status status = TW_OK;
    *brought = 0;
    for (uint64_t step = 0; status == TW_OK && step < STEPS; step++)
        status = take_step(reducer, tw_comm_rank(comm), step, brought);
    snprintf(text, sizeof text, "%s", tw_last_error());
    tw_reducer_destroy(reducer);
    return status == TW_OK ? TW_OK : tw_fail(status, "%s", text);
}

/* --- one group --------------------------------------------------------------------------------------------------- */

typedef struct player {
    act what;
    const char *spec;
    wire *through; /* the victim's */
    tw_status status;
    uint32_t brought;
    char text[512];
} player;

static void play(void *players, int rank, tw_comm *comm)
{
    player *me = (player *)players + rank;
    if (me->through) put_between(me->through, comm);
    me->status = me->what(comm, me->spec, &me->brought);
    snprintf(me->text, sizeof me->text, "%s", tw_last_error());
}

/* Nobody leaves before all have ended: without a word from the victim the others would wait ten minutes. */
static void run(player players[RANKS], act what, const char *spec, wire *through)
{
    for (int r = 0; r < RANKS; r++)
        players[r] = (player){.what = what, .spec = spec, .through = r == VICTIM ? through : NULL};
    run_on_threads_that_stay(RANKS, play, players);
}

static void check_damaged(const player players[RANKS], const player whole[RANKS], const wire *through)
{
    char says[64];
    snprintf(says, sizeof says, "message from rank %d ", through->sender);
    const player *victim = &players[VICTIM];
    assert_true(through->sender >= 0);
    if (victim->status != TW_ERROR_PACKET || !strstr(victim->text, says) || !strstr(victim->text, "damaged"))
        fail_msg("%s, message %ld from rank %d: status %d, \"%s\"", victim->spec, through->fatal, through->sender,
                 (int)victim->status, victim->text);
    for (int r = 0; r < RANKS; r++) {
        if (r == VICTIM) continue;
        assert_true(players[r].status == TW_OK || players[r].status == TW_ERROR_PEER);
        if (players[r].status == TW_OK) assert_int_equal(players[r].brought, whole[r].brought);
    }
}

/* Returns the number of flips. */
static long damage_messages(act what, const char *spec, uint64_t salt, long *in_words)
{
    player whole[RANKS], players[RANKS];
    wire through = {.fatal = 0};
    run(whole, what, spec, &through);
    for (int r = 0; r < RANKS; r++)
        if (whole[r].status != TW_OK) fail_msg("%s: %s", spec, whole[r].text);
    long messages = through.received;
    assert_true(messages > 0);
    for (uint64_t flip = 0; flip < FLIPS; flip++) {
        uint32_t random[4];
        tw_random(salt, 1, flip, random);
        through = (wire){.fatal = 1 + random[0] % messages, .change = damage, .seed = salt * 1000 + flip};
        run(players, what, spec, &through);
        check_damaged(players, whole, &through);
        *in_words += through.in_word;
    }
    return FLIPS;
}

TEST(in_every_collective)
{
    static const act collectives[] = {call_barrier,  call_allreduce, call_large_allreduce,  call_allgather,
                                      call_alltoall, call_broadcast, call_broadcast_packed, call_clusters};
    long flips = 0, in_words = 0;
    for (uint64_t c = 0; c < sizeof collectives / sizeof *collectives; c++)
        flips += damage_messages(collectives[c], "a collective", c, &in_words);
    assert_true(in_words > 0 && in_words < flips);
}

/* With its packets from the first step on, where a scheme has a warm-up. */
static const char *spec_of(size_t scheme, char *spec, size_t room)
{
    tw_scheme *made = NULL;
    snprintf(spec, room, "%s:warmup_steps=0", tw_schemes_name(scheme));
    tw_status status = tw_scheme_create(spec, table, TENSORS, 0, RANKS, &made);
    tw_scheme_destroy(made);
    return status == TW_OK ? spec : tw_schemes_name(scheme);
}

TEST(in_every_scheme)
{
    char spec[64];
    long flips = 0, in_words = 0;
    for (size_t s = 0; s < tw_schemes_count(); s++)
        flips += damage_messages(call_reducer, spec_of(s, spec, sizeof spec), 10 + s, &in_words);
    flips += damage_messages(call_reducer, "dgc:warmup_steps=0,per_host=3", 9, &in_words);
    flips += damage_messages(call_reducer, "sign:exchange=scatter", 8, &in_words);
    flips += damage_messages(call_reducer, "topk:exchange=scatter", 7, &in_words);
    assert_true(flips >= (long)(tw_schemes_count() + 3) * FLIPS && in_words > 0 && in_words < flips);
}

RUN_TESTS(NULL, NULL)
