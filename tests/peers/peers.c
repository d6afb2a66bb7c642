/* What is measured of a line: in a world of virtual time, whose lines are known exactly. */
#include "peers.h"
#include "support/assert.h"
#include "support/folder.h"
#include "support/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_sim.h>

enum { MOST = 5 };
#define BANDWIDTH 12.5e6
#define LATENCY 1e-3

/* A greeting of the next round's partner, 8 bytes, may pass in between. */
static void assert_close(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-3 * expected)) fail_msg("%.12g is not %.12g", value, expected);
}

/* ---- who meets whom ---- */

static void check_schedule(int size)
{
    int met[PEERS_MOST][PEERS_MOST] = {0};
    for (int round = 0; round < peers_rounds(size); round++)
        for (int rank = 0; rank < size; rank++) {
            int partner = peers_partner(rank, size, round);
            assert_true(partner >= -1 && partner < size && partner != rank);
            if (partner < 0) continue;
            assert_int_equal(peers_partner(partner, size, round), rank);
            met[rank][partner]++;
        }
    for (int one = 0; one < size; one++)
        for (int other = 0; other < size; other++) assert_int_equal(met[one][other], one != other);
}

TEST(test_every_pair_meets_once_and_nobody_twice_at_a_time)
{
    for (int size = 2; size <= PEERS_MOST; size++) {
        check_schedule(size);
        assert_true(peers_rounds(size) == size - 1 + size % 2);
    }
}

/* ---- worlds ---- */

typedef struct scene {
    double timeout, seconds;
    void (*play)(struct scene *all, int rank, tw_comm *comm); /* NULL: everybody measures */
    tw_status status[MOST];
    char reason[MOST][512];
    peers_report reports[MOST];
} scene;

static void measure(scene *all, int rank, tw_comm *comm)
{
    const peers_settings settings = {.timeout = all->timeout, .seconds = all->seconds, .counters = "/nonexistent"};
    tw_comm_set_timeout(comm, all->timeout);
    all->status[rank] = peers_measure(comm, &settings, &all->reports[rank]);
    if (all->status[rank] != TW_OK) snprintf(all->reason[rank], sizeof all->reason[rank], "%s", tw_last_error());
}

static void play(void *context, int rank, tw_comm *comm)
{
    scene *all = context;
    if (all->play)
        all->play(all, rank, comm);
    else
        measure(all, rank, comm);
}

/* Returns the virtual seconds that it took. */
static double run(scene *all, int workers, int per_host)
{
    tw_world *world;
    const tw_world_options options = {.struct_size = sizeof options,
                                      .workers = workers,
                                      .workers_per_host = per_host,
                                      .bandwidth = BANDWIDTH,
                                      .latency = LATENCY};
    assert_int_equal(tw_world_create(&options, &world), TW_OK);
    assert_int_equal(tw_world_run(world, play, all), TW_OK);
    double seconds = tw_world_seconds(world);
    tw_world_destroy(world);
    return seconds;
}

static scene *make_scene(double timeout)
{
    scene *all = calloc(1, sizeof *all);
    assert_non_null(all);
    all->timeout = timeout;
    all->seconds = 0.3;
    return all;
}

TEST(test_a_known_line_is_measured_exactly)
{
    for (int workers = 2; workers <= in_part(3, MOST); workers++) {
        scene *all = make_scene(60);
        double seconds = run(all, workers, 1);
        const peers_report *report = &all->reports[0];
        for (int from = 0; from < workers; from++) {
            assert_int_equal(all->status[from], TW_OK);
            assert_memory_equal(&all->reports[from], report, sizeof *report);
            for (int to = 0; to < workers; to++) {
                const link_figures *link = &report->links[from][to];
                if (from == to) continue;
                assert_close(link->rate, BANDWIDTH);
                assert_close(link->rate_both, BANDWIDTH);
                assert_close(link->median, LATENCY + 8 / BANDWIDTH);
                assert_close(link->worst, LATENCY + 8 / BANDWIDTH);
                assert_string_equal(link->interface, "");
            }
        }
        assert_true(seconds > 2 * peers_rounds(workers) && seconds < 3 * peers_rounds(workers)); /* as doctor says */
        free(all);
    }
}

/* ---- a transport that is slow at first ---- */

enum { STREAM = 1024 /* bytes that are no word between streams */ };
#define OPENING 0.15 /* seconds */

/* Of one rank: when its stream began; and what it is over. */
typedef struct narrow_end {
    link_end end;
    tw_transport_ops beneath;
    void *below;
    double since;
} narrow_end;

/* A stream has half of the line until the window is open. A word between two streams closes it. */
static tw_status narrow_send(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                             void **request)
{
    narrow_end *me = self;
    if (size < STREAM)
        me->since = INFINITY;
    else if (isinf(me->since))
        me->since = tw_clock();
    if (tw_clock() - me->since < OPENING) tw_world_compute(2 * (double)size / BANDWIDTH);
    return me->beneath.start_send(me->below, peer, channel, src, size, check, request);
}

static tw_status narrow_receive(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **request)
{
    narrow_end *me = self;
    if (capacity < STREAM) me->since = INFINITY;
    return me->beneath.start_recv(me->below, peer, channel, dst, capacity, request);
}

static tw_status narrow_wait(void *self, void *request, double timeout, size_t *size, uint32_t *check)
{
    narrow_end *me = self;
    return me->beneath.wait(me->below, request, timeout, size, check);
}

static int narrow_poll(void *self, void *request, double timeout)
{
    narrow_end *me = self;
    return me->beneath.poll(me->below, request, timeout);
}

static void measure_narrow(scene *all, int rank, tw_comm *comm)
{
    narrow_end me = {.beneath = {.struct_size = sizeof me.beneath}, .since = INFINITY};
    all->status[rank] = tw_comm_lend(comm, &me.beneath, &me.below);
    me.end = (link_end){.ops = me.beneath,
                        .self = &me,
                        .rank = rank,
                        .peer = 1 - rank,
                        .timeout = all->timeout,
                        .seconds = OPENING,
                        .counters = "/nonexistent"};
    me.end.ops.start_send = narrow_send;
    me.end.ops.start_recv = narrow_receive;
    me.end.ops.wait = narrow_wait;
    me.end.ops.poll = narrow_poll;
    me.end.out = calloc(2, LINK_BYTES);
    me.end.in = me.end.out + LINK_BYTES;
    if (all->status[rank] == TW_OK) all->status[rank] = link_measure(&me.end, &all->reports[rank].links[0][0]);
    free(me.end.out);
}

TEST(test_both_directions_are_timed_when_their_windows_are_open)
{
    scene *all = make_scene(60);
    all->play = measure_narrow;
    run(all, 2, 1);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(all->status[rank], TW_OK);
        assert_close(all->reports[rank].links[0][0].rate_both, BANDWIDTH);
    }
    free(all);
}

/* Two pairs at a time are on it. */
TEST(test_ranks_of_one_host_share_its_line)
{
    scene *all = make_scene(60);
    all->seconds = 0.02; /* a line without a cost has the longest streams, of which each byte is copied */
    run(all, 4, 2);
    assert_true(all->reports[3].links[0][1].rate > 1e3 * BANDWIDTH && isfinite(all->reports[3].links[0][1].rate));
    double rate = all->reports[3].links[1][2].rate;
    assert_true(rate > 0.4 * BANDWIDTH && rate <= 1.001 * BANDWIDTH);
    free(all);
}

/* Rank 2 takes part in the first round, and then in nothing. */
static void desert(scene *all, int rank, tw_comm *comm)
{
    char host[PEERS_HOST_BYTES] = "", hosts[MOST][PEERS_HOST_BYTES];
    link_figures figures;
    if (rank != 2) {
        measure(all, rank, comm);
        return;
    }
    link_end end = {.ops = {.struct_size = sizeof end.ops},
                    .rank = rank,
                    .peer = peers_partner(rank, 4, 0),
                    .timeout = all->timeout,
                    .seconds = 0.3};
    end.counters = "/nonexistent";
    end.out = calloc(2, LINK_BYTES);
    end.in = end.out + LINK_BYTES;
    all->status[rank] = tw_comm_allgather(comm, host, sizeof host, hosts);
    if (all->status[rank] == TW_OK) all->status[rank] = tw_comm_lend(comm, &end.ops, &end.self);
    if (all->status[rank] == TW_OK) all->status[rank] = link_measure(&end, &figures);
    free(end.out);
}

static int names_rank_2(const scene *all)
{
    int named = 0;
    for (int rank = 0; rank < 4; rank++) {
        if (rank != 2) assert_int_equal(all->status[rank], TW_ERROR_PEER);
        named |= strstr(all->reason[rank], "rank 2") != NULL;
    }
    return named;
}

TEST(test_a_rank_that_leaves_is_named)
{
    scene *all = make_scene(60);
    all->play = desert;
    double seconds = run(all, 4, 1);
    assert_int_equal(all->status[2], TW_OK);
    assert_true(names_rank_2(all));
    assert_true(seconds < 20);
    free(all);
}

static void fall_silent(scene *all, int rank, tw_comm *comm)
{
    desert(all, rank, comm);
    if (rank == 2) tw_world_compute(1000);
}

TEST(test_a_rank_that_is_silent_is_named_within_the_deadline)
{
    scene *all = make_scene(7);
    all->play = fall_silent;
    run(all, 4, 1);
    int told = 0;
    for (int rank = 0; rank < 4; rank++)
        told |=
            strstr(all->reason[rank], "rank 2 did not answer rank") && strstr(all->reason[rank], "within 7 seconds");
    assert_true(names_rank_2(all) && told);
    free(all);
}

/* Rank 0 times messages, and does not end. */
static void ask_without_end(scene *all, int rank, tw_comm *comm)
{
    char host[PEERS_HOST_BYTES] = "", hosts[2][PEERS_HOST_BYTES];
    tw_transport_ops ops = {.struct_size = sizeof ops};
    void *self, *request;
    double more = 1;
    size_t size;
    uint32_t check;
    if (rank != 0) {
        measure(all, rank, comm);
        return;
    }
    tw_status status = tw_comm_allgather(comm, host, sizeof host, hosts);
    if (status == TW_OK) status = tw_comm_lend(comm, &ops, &self);
    while (status == TW_OK) {
        status = ops.start_send(self, 1, 1, &more, sizeof more, 0, &request);
        if (status == TW_OK) status = ops.wait(self, request, all->timeout, &size, &check);
        if (status == TW_OK) status = ops.start_recv(self, 1, 1, &more, sizeof more, &request);
        if (status == TW_OK) status = ops.wait(self, request, all->timeout, &size, &check);
    }
}

TEST(test_a_rank_that_asks_without_end_is_named)
{
    scene *all = make_scene(60);
    all->play = ask_without_end;
    assert_true(run(all, 2, 1) < 1); /* 203 questions of two latencies */
    assert_int_equal(all->status[1], TW_ERROR_PACKET);
    assert_non_null(strstr(all->reason[1], "rank 0 asks"));
    free(all);
}

/* Rank 1 measures as it should, and then calls its machine and its interfaces what no terminal should read. */
static void call_itself_names(scene *all, int rank, tw_comm *comm)
{
    char host[PEERS_HOST_BYTES], hosts[2][PEERS_HOST_BYTES];
    link_figures own[2], rows[4];
    if (rank != 1) {
        measure(all, rank, comm);
        return;
    }
    memset(host, 27, sizeof host);
    memset(own, 27, sizeof own);
    link_end end = {.ops = {.struct_size = sizeof end.ops}, .rank = 1, .timeout = all->timeout, .seconds = 0.3};
    end.counters = "/nonexistent";
    end.out = calloc(2, LINK_BYTES);
    end.in = end.out + LINK_BYTES;
    tw_status status = tw_comm_allgather(comm, host, sizeof host, hosts);
    if (status == TW_OK) status = tw_comm_lend(comm, &end.ops, &end.self);
    if (status == TW_OK) status = link_measure(&end, &own[0]);
    memset(own, 27, sizeof own);
    if (status == TW_OK) status = tw_comm_allgather(comm, own, sizeof own, rows);
    all->status[rank] = status;
    free(end.out);
}

TEST(test_names_of_others_can_be_printed)
{
    scene *all = make_scene(60);
    char expected[PEERS_HOST_BYTES] = "";
    all->play = call_itself_names;
    run(all, 2, 1);
    assert_int_equal(all->status[0], TW_OK);
    memset(expected, '?', sizeof expected - 1);
    assert_string_equal(all->reports[0].hosts[1], expected);
    expected[INTERFACE_BYTES - 1] = 0;
    assert_string_equal(all->reports[0].links[1][0].interface, expected);
    free(all);
}

TEST(test_one_rank_has_no_line)
{
    tw_comm *comm;
    peers_report *report = malloc(sizeof *report);
    const peers_settings settings = {.timeout = 1, .seconds = 0.1, .counters = "/nonexistent"};
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    assert_int_equal(peers_measure(comm, &settings, report), TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "2 to 64 ranks"));
    tw_comm_destroy(comm);
    free(report);
}

/* ---- interfaces ---- */

static const char head[] = "Inter-|   Receive                            |  Transmit\n"
                           " face |bytes packets errs drop fifo frame compressed multicast|bytes packets ...\n";

static void read_counters(const char *folder, const char *lines, interface_counts *counts)
{
    char path[FILENAME_MAX];
    snprintf(path, sizeof path, "%s/dev", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s%s", head, lines);
    fclose(file);
    interface_read(path, counts);
}

TEST_IN_FOLDER(test_the_interface_is_the_one_that_sent)
{
    interface_counts before, after;
    char name[INTERFACE_BYTES];
    read_counters(*state, "    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n  eth0:9000 1 0 0 0 0 0 0 1000 1 0 0 0 0 0 0\n",
                  &before);
    read_counters(*state,
                  "    lo: 599 1 0 0 0 0 0 0 599 1 0 0 0 0 0 0\n  eth0:9900 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0\n"
                  "enx0123456789ab: 1 2 3 4 5 6 7 8 1500 1 0 0 0 0 0 0\n",
                  &after);
    assert_int_equal(before.count, 2);
    assert_int_equal(after.count, 3);
    interface_find(&before, &after, 1001, name);
    assert_string_equal(name, "enx0123456789ab"); /* which was not there before */
    after.count = 2;
    interface_find(&before, &after, 1000, name);
    assert_string_equal(name, "eth0");
    interface_find(&before, &after, 1001, name);
    assert_string_equal(name, "");
    interface_read("/nonexistent", &before);
    assert_int_equal(before.count, 0);
}

RUN_TESTS(NULL, NULL)
