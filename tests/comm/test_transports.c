/* Transports that programs bring along: what a comm asks of them, and what it does when they fail at any call. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/assert.h"

#include <pthread.h>

#include "channel.h"
#include "memory.h"
#include "patience.h"
#include "receive_fails.h"
#include "subset.h"
#include "support/absent.h"

enum { RANKS = 3, COUNT = 50, LARGE = 50000, SEGMENT = 16384 };

/* --- a transport that fails ---------------------------------------------------------------------------------- */

/* Passes every call on to another comm's transport; the call number `fails_at` fails instead, or after it. */
typedef struct faulty {
    tw_comm *inner;
    long calls, fails_at;
    long requests; /* started and not waited for */
    int *destroyed;
} faulty;

static int is_due(faulty *self)
{
    return ++self->calls == self->fails_at;
}

static tw_status faulty_send(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                             void **request)
{
    faulty *me = self;
    if (is_due(me)) return tw_fail(TW_ERROR_SYSTEM, "injected at call %ld", me->calls);
    tw_status status = me->inner->ops.start_send(me->inner->self, peer, channel, src, size, check, request);
    me->requests += status == TW_OK;
    return status;
}

static tw_status faulty_recv(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **request)
{
    faulty *me = self;
    if (is_due(me)) return tw_fail(TW_ERROR_SYSTEM, "injected at call %ld", me->calls);
    tw_status status = me->inner->ops.start_recv(me->inner->self, peer, channel, dst, capacity, request);
    me->requests += status == TW_OK;
    return status;
}

static tw_status faulty_wait(void *self, void *request, double timeout, size_t *size, uint32_t *check)
{
    faulty *me = self;
    me->requests--;
    tw_status status = me->inner->ops.wait(me->inner->self, request, timeout, size, check);
    return is_due(me) ? tw_fail(TW_ERROR_SYSTEM, "injected at call %ld", me->calls) : status;
}

static int faulty_poll(void *self, void *request, double timeout)
{
    const faulty *me = self;
    return me->inner->ops.poll(me->inner->self, request, timeout);
}

static void faulty_leave(void *self)
{
    const faulty *me = self;
    me->inner->ops.leave(me->inner->self);
}

static void faulty_destroy(void *self)
{
    faulty *me = self;
    tw_comm_destroy(me->inner);
    if (me->destroyed) ++*me->destroyed;
}

static const tw_transport_ops faulty_ops = {.struct_size = sizeof(tw_transport_ops),
                                            .version = TW_TRANSPORT_VERSION,
                                            .name = "faulty",
                                            .start_send = faulty_send,
                                            .start_recv = faulty_recv,
                                            .wait = faulty_wait,
                                            .poll = faulty_poll,
                                            .leave = faulty_leave,
                                            .destroy = faulty_destroy};

/* --- every call fails once ----------------------------------------------------------------------------------- */

typedef struct rank_run {
    tw_comm *comm;
    long failing_allocation;
    tw_status status;
    char text[256];
    tw_status afterwards; /* of one more call */
} rank_run;

/* One that goes in segments: there is more than one of each chunk. */
static tw_status call_large_allreduce(tw_comm *comm)
{
    float *values = calloc(LARGE, sizeof *values);
    comm->channel->segment = SEGMENT;
    tw_status status = tw_channel_allreduce(comm->channel, TW_F32, values, LARGE);
    free(values);
    return status;
}

static tw_status call_everything(tw_comm *comm)
{
    float values[COUNT] = {1};
    const void *const *packets;
    const void *packet, *parts[RANKS];
    const size_t *sizes;
    size_t size, part_sizes[RANKS];
    tw_status status = tw_channel_allreduce(comm->channel, TW_F32, values, COUNT);
    if (status == TW_OK) status = tw_channel_allgather(comm->channel, values, 10, 2000, &packets, &sizes);
    for (int r = 0; r < RANKS; r++) parts[r] = values, part_sizes[r] = (size_t)r;
    if (status == TW_OK) status = tw_channel_alltoall(comm->channel, parts, part_sizes, 3000, &packets, &sizes);
    if (status == TW_OK) status = tw_channel_broadcast(comm->channel, 1, values, 30, 4000, &packet, &size);
    if (status == TW_OK) status = call_large_allreduce(comm);
    return status == TW_OK ? tw_channel_barrier(comm->channel) : status;
}

static void *play(void *argument)
{
    rank_run *me = argument;
    tw_fail_allocation(me->failing_allocation);
    me->status = call_everything(me->comm);
    tw_fail_allocation(0);
    strncpy(me->text, tw_last_error(), sizeof me->text - 1);
    if (me->status != TW_OK && me->status != TW_ERROR_MEMORY) me->afterwards = tw_comm_barrier(me->comm);
    tw_comm_destroy(me->comm);
    return NULL;
}

static void play_all(rank_run *runs)
{
    pthread_t threads[RANKS];
    for (int r = 0; r < RANKS; r++) assert_int_equal(pthread_create(&threads[r], NULL, play, &runs[r]), 0);
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
}

/* Rank 1 fails at call k; returns 0 when it did not come to make k calls. */
static int run_with_fault(long k)
{
    tw_comm *comms[RANKS];
    rank_run runs[RANKS] = {0};
    assert_int_equal(tw_comm_create_threads(RANKS, comms), TW_OK);
    faulty fault = {.inner = comms[1], .fails_at = k};
    assert_int_equal(tw_comm_create_custom(&faulty_ops, &fault, 1, RANKS, &comms[1]), TW_OK);
    for (int r = 0; r < RANKS; r++) runs[r].comm = comms[r];
    play_all(runs);
    assert_int_equal(fault.requests, 0);
    if (fault.calls < k) return 0;
    assert_int_equal(runs[1].status, TW_ERROR_SYSTEM);
    assert_non_null(strstr(runs[1].text, "injected"));
    for (int r = 0; r < RANKS; r++) {
        if (r != 1) assert_true(runs[r].status == TW_ERROR_PEER || runs[r].status == TW_OK);
        if (runs[r].status != TW_OK) assert_int_equal(runs[r].afterwards, TW_ERROR_PEER);
    }
    return 1;
}

TEST(a_failure_at_any_call_ends_well)
{
    long k = 1;
    while (run_with_fault(k)) k++;
    assert_true(k > 100); /* three calls a message */
}

TEST(memory_may_run_out_at_any_time)
{
    tw_status status = TW_ERROR_MEMORY;
    for (long n = 1; status == TW_ERROR_MEMORY; n++) {
        tw_comm *comms[RANKS];
        rank_run runs[RANKS] = {0};
        assert_int_equal(tw_comm_create_threads(RANKS, comms), TW_OK);
        for (int r = 0; r < RANKS; r++) runs[r].comm = comms[r];
        runs[0].failing_allocation = n;
        play_all(runs);
        status = runs[0].status;
        for (int r = 1; r < RANKS; r++)
            assert_int_equal(runs[r].status == TW_OK ? status : runs[r].status,
                             runs[r].status == TW_OK ? TW_OK : TW_ERROR_PEER);
    }
    assert_int_equal(status, TW_OK);
}

TEST(a_group_is_made_whole_or_not_at_all)
{
    tw_comm *comms[RANKS] = {0};
    tw_status status = TW_ERROR_MEMORY;
    for (long n = 1; status == TW_ERROR_MEMORY; n++) {
        tw_fail_allocation(n);
        status = tw_comm_create_threads(RANKS, comms);
        tw_fail_allocation(0);
        for (int r = 0; r < RANKS; r++) assert_true((comms[r] != NULL) == (status == TW_OK));
    }
    assert_int_equal(status, TW_OK);
    for (int r = 0; r < RANKS; r++) tw_comm_destroy(comms[r]);
    tw_comm_destroy(NULL);
}

/* --- rules of create ----------------------------------------------------------------------------------------- */

TEST(refused_transports_are_destroyed)
{
    int destroyed = 0;
    faulty self = {.destroyed = &destroyed};
    tw_comm *comm = NULL;
    const int wrong[][2] = {{-1, 2}, {2, 2}, {0, 0}, {0, TW_MAX_RANKS + 1}};
    for (int i = 0; i < 4; i++)
        assert_int_equal(tw_comm_create_custom(&faulty_ops, &self, wrong[i][0], wrong[i][1], &comm), TW_ERROR_ARGUMENT);
    tw_transport_ops incomplete = faulty_ops;
    incomplete.wait = NULL;
    assert_int_equal(tw_comm_create_custom(&incomplete, &self, 0, 1, &comm), TW_ERROR_ARGUMENT);
    assert_int_equal(destroyed, 5);
    tw_transport_ops other_version = faulty_ops;
    other_version.version++;
    assert_int_equal(tw_comm_create_custom(&other_version, &self, 0, 1, &comm), TW_ERROR_ARGUMENT);
    assert_null(comm);
    for (long n = 1; n <= 3; n++) { /* the comm, its channel, and the channel's array */
        tw_fail_allocation(n);
        assert_int_equal(tw_comm_create_custom(&faulty_ops, &self, 0, 1, &comm), TW_ERROR_MEMORY);
    }
    tw_fail_allocation(0);
    assert_int_equal(destroyed, 8);
}

TEST(a_single_rank_talks_to_nobody)
{
    faulty self = {.fails_at = 1};
    tw_comm *comm;
    float values[COUNT] = {3};
    assert_int_equal(tw_comm_create_custom(&faulty_ops, &self, 0, 1, &comm), TW_OK);
    assert_string_equal(tw_comm_transport(comm), "faulty");
    assert_int_equal(tw_comm_allreduce(comm, values, COUNT), TW_OK);
    assert_int_equal(tw_comm_broadcast(comm, 0, values, sizeof values), TW_OK);
    assert_int_equal(tw_comm_barrier(comm), TW_OK);
    assert_true(values[0] == 3);
    assert_int_equal(self.calls, 0);
    tw_traffic traffic = {.struct_size = sizeof traffic};
    assert_int_equal(tw_comm_traffic(comm, &traffic), TW_OK);
    assert_int_equal(traffic.messages_sent, 0);
    tw_comm_destroy(comm);
}

/* --- a transport that lies about sizes ------------------------------------------------------------------------ */

static tw_status liar_wait(void *self, void *request, double timeout, size_t *size, uint32_t *check)
{
    tw_status status = faulty_wait(self, request, timeout, size, check);
    *size += 1;
    return status;
}

TEST(impossible_sizes_are_refused)
{
    tw_comm *comms[RANKS];
    rank_run runs[RANKS] = {0};
    tw_transport_ops liar = faulty_ops;
    liar.wait = liar_wait;
    assert_int_equal(tw_comm_create_threads(RANKS, comms), TW_OK);
    faulty self = {.inner = comms[0]};
    assert_int_equal(tw_comm_create_custom(&liar, &self, 0, RANKS, &comms[0]), TW_OK);
    for (int r = 0; r < RANKS; r++) runs[r].comm = comms[r];
    play_all(runs);
    assert_int_equal(runs[0].status, TW_ERROR_PACKET);
    assert_int_equal(self.requests, 0);
}

/* --- lending ------------------------------------------------------------------------------------------------- */

TEST(test_what_is_lent_carries_messages)
{
    tw_comm *comms[2], *part;
    tw_transport_ops ops = {.struct_size = sizeof ops};
    void *ends[2], *sending, *receiving;
    unsigned char sent[4] = {1, 2, 3, 4}, received[4] = {0};
    size_t size = 0;
    uint32_t check = 0;
    assert_int_equal(tw_comm_create_threads(2, comms), TW_OK);
    assert_int_equal(tw_comm_set_timeout(comms[0], 12.5), TW_OK);
    assert_true(tw_comm_timeout(comms[0]) == 12.5 && tw_comm_timeout(comms[1]) == 600);
    for (int r = 0; r < 2; r++) assert_int_equal(tw_comm_lend(comms[r], &ops, &ends[r]), TW_OK);
    assert_int_equal(ops.start_recv(ends[1], 0, 7, received, sizeof received, &receiving), TW_OK);
    assert_int_equal(ops.start_send(ends[0], 1, 7, sent, sizeof sent, 99, &sending), TW_OK);
    assert_int_equal(ops.wait(ends[1], receiving, 60, &size, &check), TW_OK);
    assert_true(size == sizeof sent && check == 99 && memcmp(sent, received, sizeof sent) == 0);
    assert_int_equal(ops.wait(ends[0], sending, 60, &size, &check), TW_OK);
    assert_int_equal(tw_comm_create_part(comms[0], (int[]){0}, 1, &part), TW_OK);
    assert_int_equal(tw_comm_lend(part, &ops, &ends[0]), TW_OK);
    tw_comm_destroy(comms[1]);
    assert_int_equal(tw_comm_barrier(comms[0]), TW_ERROR_PEER);
    for (int i = 0; i < 2; i++) { /* it has failed, and its part with it */
        assert_int_equal(tw_comm_lend(i ? part : comms[0], &ops, &ends[0]), TW_ERROR_PEER);
        assert_non_null(strstr(tw_last_error(), "broke"));
    }
    tw_comm_destroy(part);
    tw_comm_destroy(comms[0]);
}

/* --- how long a peer is waited for --------------------------------------------------------------------------- */

typedef struct wait_case {
    int hears;
    double timeout, patience, lives, arrives;
    const char *text; /* of the error; NULL: the message comes */
    double from, to;  /* for how long it is waited for */
} wait_case;

static void try_wait(const wait_case *one)
{
    absent self = {.lives = one->lives, .arrives = one->arrives};
    tw_comm *comm = absent_open(&self, 2, one->hears);
    assert_int_equal(tw_comm_set_timeout(comm, one->timeout), TW_OK);
    assert_int_equal(tw_comm_set_patience(comm, one->patience), TW_OK);
    tw_channel_start_send(comm->channel, 1, "news", 4);
    tw_status status = tw_channel_finish(comm->channel);
    assert_int_equal(status, one->text ? TW_ERROR_PEER : TW_OK);
    if (one->text && !strstr(tw_last_error(), one->text)) fail_msg("\"%s\" in \"%s\"", one->text, tw_last_error());
    if (self.waited < one->from || self.waited > one->to) fail_msg("waited for %g seconds", self.waited);
    tw_comm_destroy(comm);
}

/* All but the default patience and what a message costs is as the two limits say. */
TEST(who_is_heard_of_is_waited_for)
{
    const double NEVER = (double)INFINITY;
    const wait_case cases[] = {
        {1, 8, 64, 0, NEVER, "nothing was heard of it for a timeout of 8 seconds", 8, 8},
        {1, 8, 64, NEVER, 60, NULL, 60, 61},
        {1, 8, 64, NEVER, NEVER, "within 64 seconds: where it may be busy for longer, set a longer patience", 64, 64},
        {1, 8, 64, 30, NEVER, "timeout of 8 seconds", 30, 30 + 8}, /* it lives for a while, and dies */
        {1, 8, 0, NEVER, NEVER, "patience", 1800, 1800},
        {1, 8, 4, NEVER, NEVER, "within 8 seconds", 8, 8},
        {0, 8, 0, NEVER, NEVER, "within 8 seconds: where it may be busy for longer, set a longer timeout", 8, 8},
        {0, 8, 64, NEVER, NEVER, "within 64 seconds", 64, 64},
        {0, 8, 4, NEVER, NEVER, "within 8 seconds", 8, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) try_wait(&cases[i]);
}

typedef struct lines {
    int waits, ends, broke;
    char text[256];
} lines;

static void hear_lines(void *context, tw_log_level level, const char *text)
{
    lines *all = context;
    assert_int_equal(level, TW_LOG_WARNING);
    all->ends += strstr(text, "seconds the group goes on") != NULL;
    all->broke += strstr(text, "broke") != NULL;
    if (!strstr(text, "whose programs are busy")) return;
    all->waits++;
    snprintf(all->text, sizeof all->text, "%s", text);
}

static void wait_for_rank_1(tw_comm *comm, absent *self, double seconds)
{
    self->waited = 0;
    self->arrives = seconds;
    tw_channel_start_send(comm->channel, 1, "news", 4);
    (void)tw_channel_finish(comm->channel);
}

static tw_comm *open_with_busy(absent *self, lines *all)
{
    tw_comm *comm = absent_open(self, 3, 1);
    *all = (lines){.waits = 0};
    tw_set_log(hear_lines, all);
    return comm;
}

/* Ten seconds more than any wait before, or a timeout more. Rank 2 is the busy one, for whom rank 1 may wait itself. */
TEST(whose_program_is_busy_is_told_once_in_a_long_wait)
{
    lines all;
    absent self = {.lives = (double)INFINITY, .busy = 2};
    tw_comm *comm = open_with_busy(&self, &all);
    const double seconds[] = {9, 60, 69, 78, 100};
    const int told[] = {0, 1, 1, 1, 2};
    for (int i = 0; i < 5; i++) {
        wait_for_rank_1(comm, &self, seconds[i]);
        assert_int_equal(all.waits, told[i]);
        assert_int_equal(all.ends, told[i]);
        if (i == 1)
            assert_string_equal(all.text,
                                "this process waits for ranks whose machines answer and whose programs are busy: "
                                "rank 2 at its machine; for up to 1781 seconds more");
    }
    assert_ok(tw_comm_set_timeout(comm, 4));
    wait_for_rank_1(comm, &self, 103);
    assert_int_equal(all.waits, 2);
    wait_for_rank_1(comm, &self, 108);
    assert_int_equal(all.waits, 3);
    tw_set_log(NULL, NULL);
    tw_comm_destroy(comm);
}

static tw_comm *both_wait;
static tw_wait first_wait;

static void end_first_wait(absent *self)
{
    self->meanwhile = NULL;
    tw_wait_spend(&first_wait, 6);
    tw_wait_end(both_wait, &first_wait);
}

/* Of two threads the second has waited 15 seconds, which is long, when the first, of which the log was told, has waited
 * 16: then it is long no more. */
TEST(what_is_long_is_known_when_it_is_told)
{
    lines all;
    tw_wait second;
    absent self = {.busy = 2};
    both_wait = open_with_busy(&self, &all);
    tw_wait_begin(both_wait, &first_wait);
    tw_wait_begin(both_wait, &second);
    tw_wait_spend(&first_wait, 10);
    tw_wait_tell(both_wait, &first_wait);
    assert_int_equal(all.waits, 1);
    tw_wait_spend(&second, 15);
    self.meanwhile = end_first_wait;
    tw_wait_tell(both_wait, &second);
    assert_int_equal(all.ends, 1);
    assert_int_equal(all.waits, 1);
    tw_wait_spend(&second, 11);
    tw_wait_tell(both_wait, &second);
    assert_int_equal(all.waits, 2);
    tw_set_log(NULL, NULL);
    tw_comm_destroy(both_wait);
}

/* Nobody is late for one that follows the others, or whose patience has no end. Of a group whose maker tells what
 * becomes of it, the log is not told that it broke, either. */
TEST(who_only_follows_is_told_nothing)
{
    lines all;
    for (int way = 0; way < 4; way++) {
        absent self = {.lives = (double)INFINITY, .busy = 1, .is_told_of = way == 3};
        tw_comm *comm = open_with_busy(&self, &all);
        if (way == 1) tw_channel_keep_quiet(comm->channel, 1);
        if (way == 2) assert_ok(tw_comm_set_patience(comm, 1e9));
        wait_for_rank_1(comm, &self, 60);
        assert_int_equal(all.waits, way == 0);
        assert_int_equal(all.broke, 0);
        self.fails = 1;
        wait_for_rank_1(comm, &self, (double)INFINITY);
        assert_int_equal(all.broke, way != 3);
        tw_set_log(NULL, NULL);
        tw_comm_destroy(comm);
    }
}

/* Rank 0 loses patience with rank 2, which is the second of a part. Of the others each waits for one that gave up. */
TEST(who_failed_is_named_by_all_threads)
{
    static const int ranks[] = {0, 2};
    tw_comm *comms[5], *part;
    assert_ok(tw_comm_create_threads(5, comms));
    assert_ok(tw_comm_set_timeout(comms[0], 0.01));
    assert_ok(tw_comm_create_part(comms[0], ranks, 2, &part));
    receive_fails(part, 1, "rank 1 did not answer rank 0");
    receive_fails(comms[1], 0, "rank 2 failed: rank 0 gave up the group because of it");
    receive_fails(comms[3], 1, "rank 2 failed: rank 1 gave up the group because of it");
    receive_fails(comms[2], 3, "rank 2 failed: rank 3 gave up the group because of it");
    receive_fails(comms[4], 2, "rank 2 has left the group");
    tw_comm_destroy(part);
    for (int r = 0; r < 5; r++) tw_comm_destroy(comms[r]);
}

TEST(a_part_of_a_group_waits_alike)
{
    static const int ranks[] = {0, 2};
    absent self = {.lives = (double)INFINITY, .arrives = (double)INFINITY};
    tw_comm *whole = absent_open(&self, 3, 1), *subset = NULL;
    assert_int_equal(tw_comm_set_timeout(whole, 8), TW_OK);
    assert_int_equal(tw_comm_set_patience(whole, 64), TW_OK);
    assert_int_equal(tw_comm_create_subset(whole, ranks, 2, 9, NULL, &subset), TW_OK);
    tw_channel_start_send(subset->channel, 1, "news", 4);
    assert_fails(tw_channel_finish(subset->channel), TW_ERROR_PEER,
                 "rank 2 is there, but did not answer rank 0 within 64 seconds");
    assert_int_equal(self.asked, 2);
    assert_true(self.asked_at == 4); /* so that there is time for an answer */
    tw_comm_destroy(subset);
    tw_comm_destroy(whole);
}

RUN_TESTS(NULL, NULL)
