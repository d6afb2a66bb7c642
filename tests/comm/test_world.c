/* A virtual world: its times against arithmetic, and that every run of it ends, the same way each time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/assert.h"

#include <thinwire/thinwire_sim.h>

#include "channel.h"
#include "memory.h"

/* Powers of two, so that sums of times are exact. */
#define BANDWIDTH 1048576.0
#define LATENCY 0x1p-6
#define OVERHEAD 0x1p-10
enum { BYTES = 65536, MOST = 16 };
#define TRANSFER ((double)BYTES / BANDWIDTH)

/* What ranks saw, for the test to look at afterwards. */
typedef struct record {
    double at[MOST];
    tw_status status[MOST];
    char text[MOST][256];
} record;

static tw_world_options link_of(int workers)
{
    return (tw_world_options){.struct_size = sizeof(tw_world_options),
                              .workers = workers,
                              .bandwidth = BANDWIDTH,
                              .latency = LATENCY,
                              .overhead = OVERHEAD};
}

static double run(tw_world_options options, tw_world_worker worker, void *context)
{
    tw_world *world;
    assert_int_equal(tw_world_create(&options, &world), TW_OK);
    assert_int_equal(tw_world_run(world, worker, context), TW_OK);
    double seconds = tw_world_seconds(world);
    tw_world_destroy(world);
    return seconds;
}

/* Only one thread runs at a time, and cmocka's asserts may not jump out of it: what fails inside is counted. */
static int failures;

static void check(int holds)
{
    failures += !holds;
}

static char outbox[BYTES], inbox[MOST][BYTES];

static void send_to(tw_comm *comm, int peer, size_t bytes)
{
    tw_channel_start_send(comm->channel, peer, outbox, bytes);
}

static void receive_from(tw_comm *comm, int peer, size_t bytes)
{
    tw_channel_start_receive(comm->channel, peer, inbox[peer], bytes, NULL);
}

static void finish(record *seen, tw_comm *comm)
{
    int rank = tw_comm_rank(comm);
    seen->status[rank] = tw_channel_finish(comm->channel);
    seen->at[rank] = tw_clock();
    strncpy(seen->text[rank], tw_last_error(), sizeof seen->text[rank] - 1);
}

/* --- one message, and lines that are shared ------------------------------------------------------------------- */

static void play_one_message(void *context, int rank, tw_comm *comm)
{
    if (rank == 0) send_to(comm, 1, BYTES);
    if (rank == 1) receive_from(comm, 0, BYTES);
    finish(context, comm);
}

TEST(a_message_takes_overhead_latency_and_transfer)
{
    record seen = {0};
    assert_true(run(link_of(2), play_one_message, &seen) == OVERHEAD + LATENCY + TRANSFER);
    assert_true(seen.at[0] == OVERHEAD + TRANSFER);
    assert_true(seen.at[1] == OVERHEAD + LATENCY + TRANSFER);
    tw_world_options ideal = {.struct_size = sizeof ideal, .workers = 2};
    assert_true(run(ideal, play_one_message, &seen) == 0);
}

/* Everybody but the last sends to the last. */
static void play_many_to_one(void *context, int rank, tw_comm *comm)
{
    int last = tw_comm_size(comm) - 1;
    for (int r = 0; rank == last && r < last; r++) receive_from(comm, r, BYTES);
    if (rank != last) send_to(comm, last, BYTES);
    finish(context, comm);
}

TEST(senders_share_the_receivers_line)
{
    record seen = {0};
    run(link_of(4), play_many_to_one, &seen);
    for (int r = 0; r < 3; r++) assert_true(seen.at[r] == OVERHEAD + TRANSFER);
    assert_true(seen.at[3] == OVERHEAD + LATENCY + 3 * TRANSFER);
}

static void play_one_to_many(void *context, int rank, tw_comm *comm)
{
    for (int r = 1; rank == 0 && r < tw_comm_size(comm); r++) send_to(comm, r, BYTES);
    if (rank != 0) receive_from(comm, 0, BYTES);
    finish(context, comm);
}

TEST(messages_take_turns_on_the_senders_line)
{
    record seen = {0};
    run(link_of(4), play_one_to_many, &seen);
    for (int r = 1; r < 4; r++) assert_true(seen.at[r] == r * (OVERHEAD + TRANSFER) + LATENCY);
}

/* 0 -> 1 at once and 2 -> 1 a moment before 0's first bit is there: who comes first on the line goes first. */
static void play_order(void *context, int rank, tw_comm *comm)
{
    if (rank == 0) {
        send_to(comm, 3, BYTES);
        send_to(comm, 1, BYTES); /* its turn comes late */
    } else if (rank == 2) {
        tw_world_compute(TRANSFER / 2);
        send_to(comm, 1, BYTES);
    } else {
        receive_from(comm, 0, BYTES);
        if (rank == 1) receive_from(comm, 2, BYTES);
    }
    finish(context, comm);
}

TEST(first_bits_decide_the_order_on_the_receivers_line)
{
    record seen = {0};
    run(link_of(4), play_order, &seen);
    /* 2's goes through without waiting; 0's first bit comes at 2 overheads, a latency and a transfer, when it still
     * runs for half a transfer and an overhead less. */
    assert_true(seen.at[1] == TRANSFER / 2 + OVERHEAD + LATENCY + 2 * TRANSFER);
}

/* Towards a host the line may be faster than away from it, or slower. */
TEST(a_line_has_a_rate_each_way)
{
    record seen = {0};
    tw_world_options slower = link_of(2), faster = link_of(2), shared = link_of(4);
    slower.bandwidth_down = BANDWIDTH / 4;
    assert_true(run(slower, play_one_message, &seen) == OVERHEAD + LATENCY + 4 * TRANSFER);
    assert_true(seen.at[0] == OVERHEAD + TRANSFER);
    faster.bandwidth_down = BANDWIDTH * 4;
    assert_true(run(faster, play_one_message, &seen) == OVERHEAD + LATENCY + TRANSFER);
    shared.bandwidth_down = BANDWIDTH * 2; /* three come at once: half as long as one behind the other */
    run(shared, play_many_to_one, &seen);
    assert_true(seen.at[3] == OVERHEAD + LATENCY + 3 * TRANSFER / 2);
    shared.bandwidth_down = BANDWIDTH * 4; /* room for all of them side by side */
    run(shared, play_many_to_one, &seen);
    assert_true(seen.at[3] == OVERHEAD + LATENCY + TRANSFER);
    shared.bandwidth_down = -1;
    tw_world *world;
    assert_int_equal(tw_world_create(&shared, &world), TW_ERROR_ARGUMENT);
}

static void play_exchange(void *context, int rank, tw_comm *comm)
{
    receive_from(comm, 1 - rank, BYTES);
    send_to(comm, 1 - rank, BYTES);
    finish(context, comm);
}

TEST(lines_are_full_duplex)
{
    record seen = {0};
    assert_true(run(link_of(2), play_exchange, &seen) == OVERHEAD + LATENCY + TRANSFER);
}

/* Two hosts of two workers: 0 -> 2 and 1 -> 3 at once. */
static void play_two_pairs(void *context, int rank, tw_comm *comm)
{
    if (rank < 2) send_to(comm, rank + 2, BYTES);
    if (rank >= 2) receive_from(comm, rank - 2, BYTES);
    finish(context, comm);
}

TEST(workers_of_a_host_share_its_line)
{
    record seen = {0};
    tw_world_options options = link_of(4);
    options.workers_per_host = 2;
    run(options, play_two_pairs, &seen);
    assert_true(seen.at[2] == OVERHEAD + TRANSFER + LATENCY);
    assert_true(seen.at[3] == 2 * (OVERHEAD + TRANSFER) + LATENCY);
    options.workers_per_host = 4;
    assert_true(run(options, play_two_pairs, &seen) == 0);
}

TEST(bytes_are_those_that_cross_a_line)
{
    record seen = {0};
    tw_world *world;
    tw_world_options options = link_of(4);
    options.workers_per_host = 3; /* 0, 1, 2 | 3 */
    assert_int_equal(tw_world_create(&options, &world), TW_OK);
    assert_int_equal(tw_world_run(world, play_many_to_one, &seen), TW_OK);
    for (int r = 0; r < 4; r++) assert_int_equal(tw_world_bytes(world, r), r < 3 ? BYTES : 0);
    assert_int_equal(tw_world_bytes(world, 4), 0);
    tw_world_destroy(world);
}

/* A message that nobody asks for yet does not hold its sender up, and is there when somebody does. */
static void play_late_receiver(void *context, int rank, tw_comm *comm)
{
    if (rank == 1) {
        tw_world_compute(100);
        check(tw_clock() == 100);
        receive_from(comm, 0, BYTES);
    } else {
        strcpy(outbox, "early");
        send_to(comm, 1, BYTES);
    }
    finish(context, comm);
    if (rank == 0) strcpy(outbox, "later");
    if (rank == 1) check(strcmp(inbox[0], "early") == 0);
}

TEST(senders_do_not_wait_for_receivers)
{
    record seen = {0};
    run(link_of(2), play_late_receiver, &seen);
    assert_true(seen.at[0] == OVERHEAD + TRANSFER && seen.at[1] == 100);
    assert_int_equal(failures, 0);
}

/* --- collectives: their times follow from their messages ------------------------------------------------------ */

static void play_collectives(void *context, int rank, tw_comm *comm)
{
    double *at = context;
    int size = tw_comm_size(comm);
    size_t count = 12 * 1024;
    float *values = calloc(count * (size_t)size, sizeof *values);
    values[0] = (float)rank;
    check(tw_comm_allreduce(comm, values, count) == TW_OK);
    check(values[0] == (float)(size * (size - 1) / 2));
    if (rank == 0) at[0] = tw_clock();
    check(tw_comm_barrier(comm) == TW_OK);
    if (rank == 0) at[1] = tw_clock();
    check(tw_comm_allgather(comm, inbox, 4096, values) == TW_OK);
    if (rank == 0) at[2] = tw_clock();
    free(values);
}

/* All ranks do the same at the same time, so that on both lines messages follow one another without a gap. Of two each
 * sends all that it has, and no sum comes back. */
TEST(collectives_take_the_time_of_their_messages)
{
    for (int ranks = 2; ranks <= 4; ranks++) {
        double at[3], peers = ranks - 1, chunk = 12 * 1024 * 4 / ranks / BANDWIDTH, packet = 4096 / BANDWIDTH;
        run(link_of(ranks), play_collectives, at);
        double phase = peers * (OVERHEAD + chunk) + LATENCY, round = OVERHEAD + LATENCY, rounds = ranks > 2 ? 2 : 1;
        assert_true(at[0] == (ranks > 2 ? 2 * phase : OVERHEAD + 2 * chunk + LATENCY));
        assert_true(at[1] - at[0] == rounds * round);
        assert_true(at[2] - at[1] == peers * (OVERHEAD + packet) + LATENCY);
    }
    assert_int_equal(failures, 0);
}

/* More ranks than a window has peers, and fewer values than ranks. */
static void play_among_many(void *context, int rank, tw_comm *comm)
{
    enum { FEW = 200, ROOM = 600 };
    const float *unit = context;
    int size = tw_comm_size(comm), all[ROOM] = {0}, others = 0;
    float values[FEW];
    for (int i = 0; i < FEW; i++) values[i] = (float)(rank + i) * *unit;
    check(tw_comm_allreduce(comm, values, FEW) == TW_OK);
    for (int i = 0; i < FEW; i++) check(values[i] == (float)(size * (size - 1) / 2 + size * i));
    check(tw_comm_allgather(comm, &rank, sizeof rank, all) == TW_OK);
    for (int r = 0; r < size; r++) others += all[r] != r;
    check(others == 0);
}

TEST(collectives_of_many_ranks_go_by_windows)
{
    float one = 1;
    run(link_of(256), play_among_many, &one);
    run(link_of(257), play_among_many, &one);
    run(link_of(600), play_among_many, &one);
    assert_int_equal(failures, 0);
}

/* Parts that no sum but the one in rank order adds up to: 2^24 first, and then ones, which it swallows one by one. */
static void play_few_owners(void *context, int rank, tw_comm *comm)
{
    enum { FEW = 200, CHUNK = 64 };
    uint64_t owners = FEW / CHUNK + 1, others = (uint64_t)tw_comm_size(comm) - 1, sent = others;
    float values[FEW];
    (void)context;
    for (int i = 0; i < FEW; i++) values[i] = rank == 0 ? 0x1p24F : 1;
    check(tw_comm_allreduce(comm, values, FEW) == TW_OK);
    for (int i = 0; i < FEW; i++) check(values[i] == 0x1p24F);
    tw_traffic traffic = tw_counters_read(&comm->counters);
    if ((uint64_t)rank >= owners)
        sent = owners; /* a part to each of them */
    else
        sent += owners - 1; /* and its sums to everybody */
    check(traffic.messages_sent == sent);
}

/* The square of the ranks is not what it takes to add up a few values. */
TEST(among_many_ranks_few_sum)
{
    run(link_of(600), play_few_owners, NULL);
    assert_int_equal(failures, 0);
}

static void play_barriers(void *context, int rank, tw_comm *comm)
{
    (void)context, (void)rank;
    for (int i = 0; i < 2; i++) check(tw_comm_barrier(comm) == TW_OK);
}

TEST(a_thousand_workers_meet)
{
    double seconds = run(link_of(1024), play_barriers, NULL);
    assert_true(seconds == 2 * 10 * (OVERHEAD + LATENCY));
    assert_int_equal(failures, 0);
}

/* --- computing and other threads ------------------------------------------------------------------------------- */

static void *compute_beside(void *argument)
{
    tw_world_compute(*(double *)argument);
    *(double *)argument = tw_clock();
    return NULL;
}

static void play_compute(void *context, int rank, tw_comm *comm)
{
    double *at = context, beside = 3 * (rank + 1);
    tw_thread thread;
    (void)comm;
    check(tw_thread_start(&thread, compute_beside, &beside) == TW_OK);
    tw_world_compute(1 + rank);
    tw_world_compute(0);
    at[2 * rank] = tw_clock();
    tw_thread_join(thread);
    at[2 * rank + 1] = tw_clock();
    check(beside == tw_clock());
}

TEST(threads_compute_side_by_side)
{
    double at[4];
    assert_true(run(link_of(2), play_compute, at) == 6);
    assert_true(at[0] == 1 && at[1] == 3 && at[2] == 2 && at[3] == 6);
    double before = tw_clock();
    tw_world_compute(1e9); /* this thread lives in no world */
    tw_world_kill();
    assert_true(tw_clock() - before < 1e9);
    assert_int_equal(failures, 0);
}

/* --- what ends badly, ends ------------------------------------------------------------------------------------ */

static void play_silence(void *context, int rank, tw_comm *comm)
{
    check(tw_comm_set_timeout(comm, 5) == TW_OK);
    if (rank == 0) receive_from(comm, 1, BYTES);
    if (rank == 1) tw_world_compute(1000);
    finish(context, comm);
}

TEST(timeouts_are_virtual)
{
    record seen = {0};
    assert_true(run(link_of(2), play_silence, &seen) == 1000);
    assert_int_equal(seen.status[0], TW_ERROR_PEER);
    assert_true(seen.at[0] == 5);
    assert_non_null(strstr(seen.text[0], "did not answer"));
}

static void play_limit(void *context, int rank, tw_comm *comm)
{
    (void)rank;
    record *seen = context;
    tw_status status = TW_OK;
    while (status == TW_OK) {
        tw_world_compute(1);
        status = tw_comm_barrier(comm);
    }
    finish(seen, comm);
}

TEST(the_time_limit_ends_all)
{
    record seen = {0};
    tw_world_options options = link_of(3);
    options.time_limit = 10;
    double seconds = run(options, play_limit, &seen);
    assert_true(seconds >= 10 && seconds <= 11);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(seen.status[r], TW_ERROR_PEER);
        assert_non_null(strstr(seen.text[r], "time limit"));
    }
}

typedef struct trap {
    tw_mutex mutex;
    tw_condition never;
} trap;

static void play_deadlock(void *context, int rank, tw_comm *comm)
{
    trap *all = context;
    (void)comm;
    if (rank == 2) return;
    tw_mutex_lock(&all->mutex);
    tw_world_compute(1 + rank); /* holding it: rank 1 has to wait for the lock */
    tw_condition_wait(&all->never, &all->mutex);
    check(0);
}

TEST(a_deadlock_is_reported)
{
    trap all;
    tw_world *world;
    tw_world_options options = link_of(3);
    assert_int_equal(tw_mutex_create(&all.mutex), TW_OK);
    assert_int_equal(tw_condition_create(&all.never), TW_OK);
    assert_int_equal(tw_world_create(&options, &world), TW_OK);
    assert_fails(tw_world_run(world, play_deadlock, &all), TW_ERROR_ORDER, "rank 0 for a condition");
    assert_non_null(strstr(tw_last_error(), "rank 1 for a condition"));
    assert_null(strstr(tw_last_error(), "rank 2"));
    assert_true(tw_world_seconds(world) == 3);
    assert_int_equal(tw_world_run(world, play_deadlock, &all), TW_ERROR_ORDER);
    tw_world_destroy(world);
    tw_condition_destroy(&all.never);
    tw_mutex_destroy(&all.mutex);
    assert_int_equal(failures, 0);
}

/* A transport that passes everything on, and counts the calls: at one of them its rank is killed. */
typedef struct between {
    tw_transport_ops ops;
    void *self;
    int calls, dies_at, has_slept;
} between;

static between *note_call(void *self)
{
    between *me = self;
    if (++me->calls == me->dies_at) tw_world_kill();
    return me;
}

static tw_status pass_send(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                           void **request)
{
    const between *me = note_call(self);
    return me->ops.start_send(me->self, peer, channel, src, size, check, request);
}

static tw_status pass_receive(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **request)
{
    const between *me = note_call(self);
    return me->ops.start_recv(me->self, peer, channel, dst, capacity, request);
}

static tw_status pass_wait(void *self, void *request, double timeout, size_t *size, uint32_t *check)
{
    const between *me = note_call(self);
    return me->ops.wait(me->self, request, timeout, size, check);
}

static int pass_poll(void *self, void *request, double timeout)
{
    const between *me = note_call(self);
    return me->ops.poll(me->self, request, timeout);
}

static void put_between(between *me, tw_comm *comm)
{
    *me = (between){.ops = comm->ops, .self = comm->self};
    comm->ops.start_send = pass_send;
    comm->ops.start_recv = pass_receive;
    comm->ops.wait = pass_wait;
    comm->ops.poll = pass_poll;
    comm->self = me;
}

static void take_away(const between *me, tw_comm *comm)
{
    comm->ops = me->ops;
    comm->self = me->self;
}

enum { RANKS = 4 };

static tw_status call_barrier(tw_comm *comm)
{
    return tw_comm_barrier(comm);
}

static tw_status call_allreduce(tw_comm *comm)
{
    float values[100] = {0};
    return tw_comm_allreduce(comm, values, 100);
}

/* Of two segments. */
static tw_status call_large_allreduce(tw_comm *comm)
{
    enum { LARGE = RANKS * 16384 };
    float *values = calloc(LARGE, sizeof *values);
    comm->channel->segment = LARGE * sizeof *values / RANKS / 2;
    tw_status status = tw_comm_allreduce(comm, values, LARGE);
    free(values);
    return status;
}

static tw_status call_allgather(tw_comm *comm)
{
    const void *const *packets;
    const size_t *sizes;
    return tw_channel_allgather(comm->channel, outbox, 500, 1000, &packets, &sizes);
}

static tw_status call_alltoall(tw_comm *comm)
{
    const void *own[] = {outbox, outbox, outbox, outbox}, *const * packets;
    size_t own_sizes[] = {500, 0, 250, 1000};
    const size_t *sizes;
    return tw_channel_alltoall(comm->channel, own, own_sizes, 1000, &packets, &sizes);
}

/* Of a broadcast, only its root would notice nothing. */
static tw_status call_broadcast(tw_comm *comm)
{
    char data[100] = {0};
    tw_status status = tw_comm_broadcast(comm, 0, data, sizeof data);
    return status == TW_OK ? tw_comm_broadcast(comm, 1, data, sizeof data) : status;
}

static tw_status (*const collectives[])(tw_comm *) = {call_barrier,   call_allreduce, call_large_allreduce,
                                                      call_allgather, call_alltoall,  call_broadcast};
enum { COLLECTIVES = sizeof collectives / sizeof *collectives, REPEATS = 3 };

typedef struct murder {
    tw_status (*collective)(tw_comm *comm);
    int dies_at, calls;
    tw_status status[RANKS];
    double at[RANKS];
} murder;

/* Repeats the collective; when the victim got through all of it alive, one more round would find nobody missing. */
static void play_murder(void *context, int rank, tw_comm *comm)
{
    murder *plot = context;
    between me;
    tw_status status = TW_OK;
    put_between(&me, comm);
    if (rank == 1) me.dies_at = plot->dies_at;
    for (int i = 0; i < REPEATS && status == TW_OK; i++) status = plot->collective(comm);
    if (rank == 1) plot->calls = me.calls;
    if (rank != 1 && status == TW_OK && plot->dies_at) status = tw_comm_barrier(comm); /* the victim will not come */
    plot->status[rank] = status;
    plot->at[rank] = tw_clock();
    take_away(&me, comm);
}

static int murder_at(murder *plot)
{
    run(link_of(RANKS), play_murder, plot);
    int died = plot->dies_at && plot->calls >= plot->dies_at;
    for (int r = 0; died && r < RANKS; r++) {
        if (r != 1) assert_int_equal(plot->status[r], TW_ERROR_PEER);
        assert_true(plot->at[r] < 4); /* noticed, not timed out: three large ones take half as long */
    }
    return died;
}

TEST(a_killed_rank_is_noticed_at_every_call)
{
    for (int c = 0; c < COLLECTIVES; c++) {
        murder plot = {.collective = collectives[c]};
        assert_int_equal(murder_at(&plot), 0);
        for (int r = 0; r < RANKS; r++) assert_int_equal(plot.status[r], TW_OK);
        int calls = plot.calls;
        assert_true(calls >= 8);
        for (int k = 1; k <= calls; k++) {
            plot = (murder){.collective = collectives[c], .dies_at = k};
            assert_true(murder_at(&plot));
        }
    }
}

/* --- a process that stands still -------------------------------------------------------------------------------- */

enum { STILL = 50, LATE = 20 }; /* seconds: the first rank's standstill, and when the other one comes after it */

/* As when the process is stopped in the middle of a nap: the nap ends at once when it goes on, and nothing has come. */
static int poll_asleep(void *self, void *request, double timeout)
{
    between *me = self;
    if (me->has_slept) return me->ops.poll(me->self, request, timeout);
    me->has_slept = 1;
    tw_world_compute(STILL);
    return me->ops.poll(me->self, request, 0);
}

static void stand_still(void *context, int rank, tw_comm *comm)
{
    tw_status *status = context;
    between me;
    tw_comm_set_timeout(comm, rank == 0 ? STILL / 2 : 10 * STILL);
    put_between(&me, comm);
    if (rank == 0)
        comm->ops.poll = poll_asleep;
    else
        tw_world_compute(STILL + LATE);
    status[rank] = tw_comm_barrier(comm);
    take_away(&me, comm);
}

TEST(ones_own_standstill_is_no_silence_of_others)
{
    tw_status status[2];
    run(link_of(2), stand_still, status);
    assert_int_equal(status[0], TW_OK);
    assert_int_equal(status[1], TW_OK);
}

/* --- rules ---------------------------------------------------------------------------------------------------- */

TEST(bad_options_are_refused)
{
    tw_world *world = NULL;
    tw_world_options good = link_of(2), wrong[8];
    for (int i = 0; i < 8; i++) wrong[i] = good;
    wrong[0].struct_size = 0;
    wrong[1].workers = 0;
    wrong[2].workers = 16385;
    wrong[3].workers_per_host = -1;
    wrong[4].bandwidth = -1;
    wrong[5].latency = (double)NAN;
    wrong[6].overhead = (double)INFINITY;
    wrong[7].stack_bytes = 1;
    for (int i = 0; i < 8; i++) assert_int_equal(tw_world_create(&wrong[i], &world), TW_ERROR_ARGUMENT);
    assert_null(world);
    assert_int_equal(tw_world_create(&good, &world), TW_OK);
    tw_world_destroy(world); /* that never ran */
    tw_world_destroy(NULL);
}

TEST(a_world_is_made_whole_or_not_at_all)
{
    tw_world *world = NULL;
    tw_world_options options = link_of(3);
    tw_status status = TW_ERROR_MEMORY;
    for (long n = 1; status == TW_ERROR_MEMORY; n++) {
        tw_fail_allocation(n);
        status = tw_world_create(&options, &world);
        tw_fail_allocation(0);
        assert_true((world != NULL) == (status == TW_OK));
    }
    for (long n = 1; n < 4; n++) { /* its threads */
        tw_fail_allocation(n);
        tw_status ran = tw_world_run(world, play_barriers, NULL);
        tw_fail_allocation(0);
        assert_int_equal(ran, TW_ERROR_MEMORY);
        tw_world_destroy(world);
        assert_int_equal(tw_world_create(&options, &world), TW_OK);
    }
    tw_world_destroy(world);
}

RUN_TESTS(NULL, NULL)
