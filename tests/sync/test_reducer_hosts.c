/* Option per_host of a reducer: the workers of a host are averaged exactly, and to the scheme a host is one rank. The
 * oracle is the same scheme without the option, among as many ranks as there are hosts, each given its host's mean. All
 * of it in worlds, where one thread at a time runs and a host's line is known. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "memory.h"
#include "support/assert.h"
#include "support/cmocka.h"
#include "support/parts.h"
#include "wire.h"

#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_sim.h>

enum { MOST = 24, STEPS = 6, TENSORS = 5, WIDEST = 400, TEXT = 256 };

static const tw_tensor table[TENSORS] = {
    {"first", 2, {20, 20}}, {"bias", 1, {30}}, {"second", 2, {18, 16}}, {"third", 2, {16, 24}}, {"last", 1, {10}}};

typedef struct play play;
struct play {
    const char *spec;
    int workers;
    int per_host;      /* workers on one line */
    int mean_of;       /* each worker gives the mean over so many gradients */
    int spoilt;        /* the gradient that holds a NaN in step 1, counted from 1 */
    int leaver;        /* the rank that leaves after step 1, counted from 1 */
    int from, to;      /* steps to take; 0: all */
    int victim;        /* the rank to which something happens, counted from 1: */
    long hungry;       /* its allocation in a step that fails */
    wire *through;     /* what changes a message that it receives */
    tw_state **states; /* one a rank: what they begin with, and where they leave what they have in the end */

    tw_status status[MOST], ended[MOST][STEPS];
    uint32_t crc[MOST][STEPS];
    tw_reducer_counts stats[MOST];
    uint64_t crossed[MOST], sent[MOST]; /* bytes to other lines; all bytes */
    float momentum[MOST];
    int nesterov[MOST];
    char plan[MOST][TENSORS][128], text[MOST][TEXT];
    double seconds;
};

static float draw(int gradient, int step, int tensor, size_t i)
{
    uint32_t words[4];
    tw_random((uint64_t)(step + 1), (uint64_t)(gradient * TENSORS + tensor), i, words);
    return (float)(int32_t)words[0] * 0x1p-31f;
}

/* ((g0 / G + g1 / G) + g2 / G) + ..., in fp32. */
static void fill(const play *self, int rank, int step, int tensor, float *dst)
{
    float share = 1.0f / (float)self->mean_of;
    size_t count = tw_tensor_count(&table[tensor]);
    for (size_t i = 0; i < count; i++) dst[i] = draw(rank * self->mean_of, step, tensor, i) * share;
    for (int g = rank * self->mean_of + 1; g < (rank + 1) * self->mean_of; g++)
        for (size_t i = 0; i < count; i++) dst[i] += draw(g, step, tensor, i) * share;
    int spoils = self->spoilt && (self->spoilt - 1) / self->mean_of == rank;
    if (spoils && step == 1 && tensor == 2) dst[7] = NAN;
}

static tw_status take_step(const play *self, int rank, tw_reducer *reducer, int step, float (*gradients)[WIDEST])
{
    tw_status status = tw_reducer_set_rate(reducer, step < 3 ? 0.5f : 0.25f);
    memset(gradients, 0, TENSORS * sizeof *gradients);
    for (int t = TENSORS; t-- > 0 && status == TW_OK;) {
        fill(self, rank, step, t, gradients[t]);
        status = tw_reducer_submit(reducer, (size_t)t, gradients[t]);
    }
    return status == TW_OK ? tw_reducer_wait(reducer) : status;
}

static tw_status take_steps(play *self, int rank, tw_reducer *reducer)
{
    float gradients[TENSORS][WIDEST];
    int end = self->to ? self->to : STEPS;
    for (int step = self->from; step < end; step++) {
        if (rank == self->leaver - 1 && step == 2) return TW_OK;
        tw_status status = take_step(self, rank, reducer, step, gradients);
        self->ended[rank][step] = status;
        if (status == TW_SKIPPED) continue;
        if (status != TW_OK) return status;
        self->crc[rank][step] = tw_crc32c(0, gradients, sizeof gradients);
    }
    return TW_OK;
}

static void ask(play *self, int rank, tw_reducer *reducer)
{
    self->stats[rank].struct_size = sizeof self->stats[rank];
    tw_reducer_stats(reducer, &self->stats[rank]);
    self->momentum[rank] = tw_reducer_momentum(reducer, &self->nesterov[rank]);
    for (size_t t = 0; t < TENSORS; t++)
        snprintf(self->plan[rank][t], sizeof self->plan[rank][t], "%s", tw_reducer_plan(reducer, t));
}

static tw_status play_all(play *self, int rank, tw_reducer *reducer)
{
    tw_state *state = self->states ? self->states[rank] : NULL;
    if (state && self->from > 0 && tw_reducer_load_state(reducer, "", state) != TW_OK) return TW_ERROR_STATE;
    if (rank == self->victim - 1) tw_fail_allocation(self->hungry);
    tw_status status = take_steps(self, rank, reducer);
    tw_fail_allocation(0);
    return state && status == TW_OK ? tw_reducer_save_state(reducer, "", state) : status;
}

static void act(void *context, int rank, tw_comm *comm)
{
    play *self = context;
    tw_reducer *reducer = NULL;
    int is_between = self->through && rank == self->victim - 1;
    if (is_between) put_between(self->through, comm);
    tw_status status = tw_reducer_create(comm, self->spec, table, TENSORS, &reducer);
    if (status == TW_OK) status = play_all(self, rank, reducer);
    if (status != TW_OK) snprintf(self->text[rank], TEXT, "%s", tw_last_error());
    self->status[rank] = status;
    if (reducer) ask(self, rank, reducer);
    tw_traffic traffic = {.struct_size = sizeof traffic};
    tw_comm_traffic(comm, &traffic);
    self->sent[rank] = traffic.bytes_sent;
    tw_reducer_destroy(reducer);
    if (is_between) take_away(self->through, comm);
}

static play *run_freely(play set)
{
    tw_world *world;
    play *self = malloc(sizeof *self);
    *self = set;
    tw_world_options options = {.struct_size = sizeof options,
                                .workers = self->workers,
                                .workers_per_host = self->per_host,
                                .bandwidth = 1e7,
                                .latency = 1e-4};
    if (!self->mean_of) self->mean_of = 1;
    assert_ok(tw_world_create(&options, &world));
    if (tw_world_run(world, act, self) != TW_OK) fail_msg("%s: %s", self->spec, tw_last_error());
    for (int r = 0; r < self->workers; r++) self->crossed[r] = tw_world_bytes(world, r);
    self->seconds = tw_world_seconds(world);
    tw_world_destroy(world);
    return self;
}

static play *run(play set)
{
    play *self = run_freely(set);
    for (int r = 0; r < self->workers; r++)
        if (self->status[r] != TW_OK) fail_msg("%s, rank %d: %s", self->spec, r, self->text[r]);
    return self;
}

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

/* `spec` has its options behind a colon. */
static void with_hosts(char *text, const char *spec, int per_host)
{
    snprintf(text, TEXT + 16, "%s%cper_host=%d", spec, strchr(spec, ':') ? ',' : ':', per_host);
}

static void check_host(const play *all, const play *plain, int per_host, int rank)
{
    int host = rank / per_host, first = host * per_host;
    for (int k = 0; k < STEPS; k++) {
        if (all->ended[rank][k] != plain->ended[host][k] || all->crc[rank][k] != plain->crc[host][k])
            fail_msg("%s, rank %d, step %d: %s, %08x instead of %s, %08x", all->spec, rank, k,
                     tw_status_name(all->ended[rank][k]), all->crc[rank][k], tw_status_name(plain->ended[host][k]),
                     plain->crc[host][k]);
    }
    assert_int_equal(all->stats[rank].steps, STEPS);
    assert_int_equal(all->stats[rank].steps_skipped, plain->stats[host].steps_skipped);
    assert_int_equal(all->stats[rank].steps_warmup, plain->stats[host].steps_warmup);
    assert_true(all->momentum[rank] == plain->momentum[host] && all->nesterov[rank] == plain->nesterov[host]);
    for (int t = 0; t < TENSORS; t++) assert_string_equal(all->plan[rank][t], plain->plan[host][t]);
    /* What it put into packets is the first rank's. */
    assert_int_equal(all->stats[rank].message_packet, rank == first ? plain->stats[host].message_packet : 0);
    assert_int_equal(all->stats[rank].compressed_fp32, rank == first ? plain->stats[host].compressed_fp32 : 0);
}

/* A host's line carries in all steps what one rank's would, to the byte. */
static void check_line(const play *all, const play *plain, int per_host, int rank)
{
    uint64_t own = rank % per_host == 0 ? plain->crossed[rank / per_host] : 0;
    assert_int_equal(all->crossed[rank], own);
    assert_int_equal(all->stats[rank].bytes_between, per_host > 1 ? own : all->sent[rank]);
    assert_int_equal(all->stats[rank].bytes_sent, all->sent[rank]);
}

/* What crosses lines before the first step. */
static void leave_out_making(play *self)
{
    play *made = run((play){.spec = self->spec, .workers = self->workers, .per_host = self->per_host, .from = STEPS});
    for (int r = 0; r < self->workers; r++) self->crossed[r] -= made->crossed[r];
    free(made);
}

static void check_equal(const char *spec, int hosts, int per_host, int spoilt)
{
    char text[TEXT + 16];
    with_hosts(text, spec, per_host);
    play *plain = run((play){.spec = spec, .workers = hosts, .mean_of = per_host, .spoilt = spoilt});
    play *all = run((play){.spec = text, .workers = hosts * per_host, .per_host = per_host, .spoilt = spoilt});
    leave_out_making(plain);
    leave_out_making(all);
    assert_int_equal(plain->ended[0][1], spoilt ? TW_SKIPPED : TW_OK);
    for (int rank = 0; rank < all->workers; rank++) {
        check_host(all, plain, per_host, rank);
        check_line(all, plain, per_host, rank);
    }
    free(all);
    free(plain);
}

TEST(test_a_host_is_a_rank_to_every_scheme)
{
    char spec[TEXT];
    for (size_t s = 0; s < tw_schemes_count(); s += (size_t)in_part(2, 1)) {
        snprintf(spec, sizeof spec, "%s:message_kb=1", tw_schemes_name(s));
        check_equal(spec, 4, 4, 0);
        check_equal(spec, 3, 2, 0);
        check_equal(spec, 2, 3, 0);
        check_equal(spec, 1, 4, 0);
        check_equal(spec, 3, 1, 0);
        check_equal(tw_schemes_name(s), 2, 2, 0);
    }
}

/* Clipping looks at the norm of the host's mean; the warm-up is over before the end; the rate changes. */
TEST(test_so_it_is_with_every_option)
{
    static const char *const specs[] = {"dgc:clip=0.01,momentum=0.9,message_kb=1",
                                        "dgc:clip=0.01,overlap=off,warmup_steps=3,message_kb=1",
                                        "dgc:clip=0.01,warmup_steps=0,in_flight=8,message_kb=1",
                                        "dgc:clip=0.01,threads=2,message_kb=1",
                                        "dgc:clip=0.01,warmup_steps=0,threads=3,in_flight=8,message_kb=1",
                                        "qsgd:threads=3,message_kb=1",
                                        "allreduce:overlap=off,message_kb=1",
                                        "sdagc:warmup_steps=2,in_flight=1,message_kb=1",
                                        "topk:density=0.1,leftovers=fp32,dense=second,message_kb=1",
                                        "scalecom:rate=10,warmup_steps=2,message_kb=1",
                                        "powersgd:warmup_steps=2,message_kb=1"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) check_equal(specs[s], 3, 2, 0);
}

TEST(test_nan_of_a_member_skips_the_step_everywhere)
{
    char spec[TEXT];
    for (size_t s = 0; s < tw_schemes_count(); s += (size_t)in_part(2, 1)) {
        snprintf(spec, sizeof spec, "%s:message_kb=1", tw_schemes_name(s));
        check_equal(spec, 3, 2, 4); /* a member */
        check_equal(spec, 3, 2, 5); /* a first rank */
    }
    check_equal("dgc:clip=0.01,message_kb=1", 3, 2, 2);
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

TEST(test_a_resumed_run_is_the_uninterrupted_one)
{
    static const char *const more[] = {"message_kb=1", "message_kb=1,overlap=off", "message_kb=1,in_flight=1"};
    char spec[TEXT], text[TEXT];
    for (size_t s = 0; s < tw_schemes_count(); s += (size_t)in_part(2, 1)) {
        tw_state *states[6];
        for (int r = 0; r < 6; r++) assert_ok(tw_state_create(&states[r]));
        snprintf(spec, sizeof spec, "%s:message_kb=1,per_host=2", tw_schemes_name(s));
        snprintf(text, sizeof text, "%s:%s,per_host=2", tw_schemes_name(s), more[s % 3]);
        play *whole = run((play){.spec = spec, .workers = 6, .per_host = 2});
        free(run((play){.spec = spec, .workers = 6, .per_host = 2, .to = 3, .states = states}));
        for (int r = 1; r < 6; r += 2) assert_int_equal(tw_state_count(states[r]), 0);
        for (int r = 0; r < 6; r += 2) assert_int_not_equal(tw_state_count(states[r]), 0);
        play *rest = run((play){.spec = text, .workers = 6, .per_host = 2, .from = 3, .states = states});
        for (int r = 0; r < 6; r++) {
            assert_memory_equal(whole->crc[r] + 3, rest->crc[r] + 3, 3 * sizeof **rest->crc);
            tw_state_destroy(states[r]);
        }
        free(rest);
        free(whole);
    }
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static int is_named(const play *all, const char *text)
{
    for (int r = 0; r < all->workers; r++) {
        char name[16];
        snprintf(name, sizeof name, "rank %d", r);
        if (strstr(text, name)) return 1;
    }
    return 0;
}

/* Whoever is lost, all others learn of it: by its number among all ranks, or by that of one that left because of it. */
static void check_loss(const char *spec, int leaver)
{
    char lost[16];
    int told = 0;
    play *all = run_freely((play){.spec = spec, .workers = 6, .per_host = 3, .leaver = leaver + 1});
    snprintf(lost, sizeof lost, "rank %d", leaver);
    for (int r = 0; r < all->workers; r++) {
        if (r == leaver) continue;
        if (all->status[r] != TW_ERROR_PEER || !is_named(all, all->text[r]))
            fail_msg("rank %d, when %d has left: %s: %s", r, leaver, tw_status_name(all->status[r]), all->text[r]);
        told += strstr(all->text[r], lost) != NULL;
    }
    assert_true(told > 0 && all->seconds < 1);
    free(all);
}

TEST(test_a_lost_rank_is_an_error_of_all)
{
    for (int leaver = 0; leaver < 6; leaver++) {
        check_loss("dgc:per_host=3,message_kb=1", leaver);
        check_loss("allreduce:per_host=3,message_kb=1,overlap=off", leaver);
        check_loss("dgc:per_host=3,clip=0.1,message_kb=1", leaver);
    }
}

/* When `victim` has failed, the others have, too, or were through with the last step. */
static void check_famine(const play *all, int victim)
{
    int late = all->ended[victim][STEPS - 1] != TW_OK;
    for (int r = 0; r < all->workers; r++) {
        tw_status expected = r == victim ? TW_ERROR_MEMORY : TW_ERROR_PEER;
        if (all->status[r] != expected && !(late && all->status[r] == TW_OK))
            fail_msg("%s, rank %d without memory at allocation %ld, rank %d: %s: %s", all->spec, victim, all->hungry, r,
                     tw_status_name(all->status[r]), all->text[r]);
    }
}

/* Whichever rank finds no memory, in a message's rounds or before or after them: the others do not wait for it. */
TEST(test_a_rank_without_memory_is_an_error_of_all)
{
    static const char *const specs[] = {"topk:per_host=2,overlap=off", "topk:per_host=4,overlap=off"};
    for (int i = 0; i < 8; i++) {
        int failed = 1;
        long n = 0;
        while (failed) {
            play *all = run_freely(
                (play){.spec = specs[i / 4], .workers = 4, .per_host = 2, .victim = 1 + i % 4, .hungry = ++n});
            failed = all->status[i % 4] != TW_OK;
            if (failed) check_famine(all, i % 4);
            assert_true(all->seconds < 1);
            free(all);
        }
        assert_true(n > 1);
    }
}

/* The word behind a message's values. */
static float lies[] = {4, -1, 0.5f, NAN, INFINITY};

static void lie(wire *through, unsigned char *message, size_t *size, uint32_t *check)
{
    memcpy(message + *size - sizeof *lies, &lies[through->seed], sizeof *lies);
    *check = tw_crc32c(0, message, *size);
}

/* A value less than there is. */
static void leave_out(wire *through, unsigned char *message, size_t *size, uint32_t *check)
{
    (void)through;
    for (size_t i = 0; i < *size; i++)
        if (message[i]) {
            message[i] &= (unsigned char)(message[i] - 1);
            break;
        }
    *check = tw_crc32c(0, message, *size);
}

static void check_lie(const char *spec, wire change, const char *says)
{
    wire through = {.fatal = 0};
    const play one_step = {.spec = spec, .workers = 4, .per_host = 2, .victim = 4, .to = 1, .through = &through};
    free(run(one_step));
    change.fatal = through.received;
    through = change;
    play *all = run_freely(one_step);
    if (all->status[3] != TW_ERROR_PACKET || !strstr(all->text[3], says))
        fail_msg("%s: %d: %s: %s", spec, (int)change.seed, tw_status_name(all->status[3]), all->text[3]);
    free(all);
}

/* What a sparse scheme brings is told without its zeros. */
TEST(test_a_first_rank_that_lies_is_named)
{
    for (uint64_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        const wire change = {.change = lie, .seed = i};
        check_lie("topk:per_host=2,leftovers=fp32", change, "rank 2 tells its host what cannot be");
        check_lie("allreduce:per_host=2", change, "rank 2 tells its host what cannot be");
    }
    check_lie("topk:density=0.01,min_dims=1,min_elements=1,min_sent=1,per_host=2,message_kb=1",
              (wire){.change = leave_out}, "rank 2 tells its host what cannot be: values");
}

TEST(test_hosts_are_of_one_size)
{
    play *all = run_freely((play){.spec = "dgc:per_host=4", .workers = 6});
    for (int r = 0; r < all->workers; r++) {
        assert_int_equal(all->status[r], TW_ERROR_SPEC);
        assert_non_null(strstr(all->text[r], "per_host=4 does not divide the 6 workers"));
    }
    free(all);
    all = run_freely((play){.spec = "topk:per_host=0", .workers = 2});
    assert_int_equal(all->status[1], TW_ERROR_SPEC);
    free(all);
}

TEST(test_a_scheme_by_hand_has_no_hosts)
{
    tw_scheme *scheme = NULL;
    assert_int_equal(tw_scheme_create("dgc:per_host=2", table, TENSORS, 0, 4, &scheme), TW_ERROR_SPEC);
    assert_non_null(strstr(tw_last_error(), "per_host=2 is for a reducer"));
    assert_null(scheme);
    assert_ok(tw_scheme_create("dgc:per_host=1", table, TENSORS, 0, 4, &scheme));
    tw_scheme_destroy(scheme);
}

RUN_TESTS(NULL, NULL)
