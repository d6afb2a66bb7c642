/* What one rank hands to the others whole: to the bit, whoever has it and however many they are, in fewer bytes than it
 * has where it is weights; and one that sends what cannot be is named. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_outer.h>

#include "channel.h"
#include "planes.h"
#include "support/ranks.h"

enum { MOST_RANKS = 5, LARGE = 600000 /* floats: three blocks, the last one short */, SMALL = 1000 };

typedef struct story {
    int ranks, root;
    size_t count, awaited; /* awaited: by the others, where they pass another count */
    const float *given;
    float *have[MOST_RANKS];
    uint64_t sent;
    tw_status status[MOST_RANKS];
    char text[MOST_RANKS][256];
} story;

static float *make(size_t count, uint32_t bits)
{
    float *made = malloc(count * sizeof *made);
    uint32_t word = bits;
    assert_non_null(made);
    for (size_t i = 0; i < count; i++) {
        word = word * 1664525U + 1013904223U;
        made[i] = bits ? (float)pow((double)(word >> 8) * 0x1p-24, 3) * (word & 128 ? -0.05f : 0.05f) : 0;
    }
    return made;
}

static void end(story *s)
{
    for (int r = 0; r < s->ranks; r++) free(s->have[r]);
}

static void take(void *context, int rank, tw_comm *comm)
{
    story *s = context;
    tw_traffic traffic = {.struct_size = sizeof traffic};
    if (rank == s->root) memcpy(s->have[rank], s->given, s->count * sizeof *s->given);
    s->status[rank] = tw_comm_broadcast_packed(comm, s->root, s->have[rank], s->count, sizeof *s->given);
    if (rank == s->root && tw_comm_traffic(comm, &traffic) == TW_OK) s->sent = traffic.bytes_sent;
}

/* Returns what the root sent. */
static uint64_t hand(int ranks, int root, const float *given, size_t count)
{
    story s = {.ranks = ranks, .root = root, .count = count, .given = given};
    for (int r = 0; r < ranks; r++) s.have[r] = make(count, (uint32_t)r + 1);
    run_on_threads_that_stay(ranks, take, &s);
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(s.status[r], TW_OK);
        assert_memory_equal(s.have[r], given, count * sizeof *given);
    }
    end(&s);
    return s.sent;
}

TEST(test_all_have_what_the_root_has)
{
    float *weights = make(SMALL, 77);
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (int root = 0; root < ranks; root++) {
            hand(ranks, root, weights, SMALL);
            hand(ranks, root, weights, 0);
        }
    free(weights);
}

TEST(test_it_takes_fewer_bytes_than_it_has)
{
    float *weights = make(LARGE, 77), *zeros = make(LARGE, 0);
    assert_true(hand(2, 1, weights, LARGE) < 0.87 * LARGE * sizeof *weights);
    assert_true(hand(2, 0, zeros, LARGE) < 64);
    assert_int_equal(hand(1, 0, weights, LARGE), 0);
    free(weights);
    free(zeros);
}

/* All that a rank has of it are its own words. */
static void lie(void *context, int rank, tw_comm *comm)
{
    story *s = context;
    const void *packet;
    size_t size = 0;
    unsigned char block[sizeof(uint64_t) + 3] = {SMALL & 255, SMALL >> 8, [sizeof(uint64_t)] = 255};
    s->status[rank] =
        rank == s->root ? tw_channel_broadcast(comm->channel, rank, block, sizeof block,
                                               sizeof(uint64_t) + tw_planes_bound(SMALL, sizeof(float)), &packet, &size)
                        : tw_comm_broadcast_packed(comm, s->root, s->have[rank], SMALL, sizeof(float));
    if (s->status[rank] != TW_OK) snprintf(s->text[rank], sizeof s->text[rank], "%s", tw_last_error());
}

TEST(test_who_sends_what_cannot_be_is_named)
{
    story s = {.ranks = 2, .root = 1};
    for (int r = 0; r < s.ranks; r++) s.have[r] = make(SMALL, 1);
    run_on_threads_that_stay(s.ranks, lie, &s);
    assert_int_equal(s.status[0], TW_ERROR_PACKET);
    assert_string_equal(s.text[0],
                        "a block of numbers from rank 1 cannot be: it codes bytes that its numbers have not");
    end(&s);
}

static void take_own_count(void *context, int rank, tw_comm *comm)
{
    story *s = context;
    s->status[rank] =
        tw_comm_broadcast_packed(comm, s->root, s->have[rank], rank ? s->awaited : s->count, sizeof(float));
    snprintf(s->text[rank], sizeof s->text[rank], "%s", s->status[rank] == TW_OK ? "" : tw_last_error());
}

/* Of numbers that are all alike no other byte says how many they are. The first two counts differ in the last block
 * alone, and the third by a whole block; of the others one side has a smaller block, or nothing. */
TEST(test_who_awaits_another_count_is_told_both)
{
    const size_t counts[][2] = {{LARGE, LARGE + SMALL},
                                {LARGE, LARGE - SMALL},
                                {LARGE, LARGE - TW_PLANES_BLOCK / sizeof(float)},
                                {LARGE, SMALL},
                                {LARGE, 0},
                                {SMALL, 0},
                                {0, SMALL}};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        char wanted[256];
        story s = {.ranks = 2,
                   .count = counts[c][0],
                   .awaited = counts[c][1],
                   .have = {make(LARGE, 0), make(LARGE + SMALL, 1)}};
        run_on_threads_that_stay(s.ranks, take_own_count, &s);
        snprintf(wanted, sizeof wanted,
                 "rank 0 hands over %zu numbers more, and this rank awaits %zu: every rank must pass the same count",
                 s.count, s.awaited);
        assert_int_equal(s.status[1], TW_ERROR_PACKET);
        assert_string_equal(s.text[1], wanted);
        end(&s);
    }
}

RUN_TESTS(NULL, NULL)
