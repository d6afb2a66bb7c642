/* A program's own allocator: all that the library takes comes from it, as it asked, and goes back. It is set once, so
 * each test is a process of its own. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_outer.h>
#include <thinwire/thinwire_sim.h>
#include <unistd.h>

#include "support/assert.h"

enum { RANKS = 2, COUNT = 4096 };
static const tw_tensor table[] = {{.name = "w", .dims = 2, .shape = {64, 64}}};

/* What the allocator has given, in front of each block and counted. */
typedef struct ledger {
    pthread_mutex_t lock;
    long given, live, refuse_at; /* refuse_at: the number of the one that gets nothing; 0: none */
    int wrong;
} ledger;

typedef struct head {
    ledger *owner;
    void *start;
    size_t bytes;
} head;

static void *take(void *context, size_t alignment, size_t bytes)
{
    ledger *all = context;
    pthread_mutex_lock(&all->lock);
    int refused = ++all->given == all->refuse_at;
    all->wrong += alignment < 64 || alignment > 2 << 20 || (alignment & (alignment - 1)) || bytes % alignment || !bytes;
    all->live += !refused;
    pthread_mutex_unlock(&all->lock);
    if (refused) return NULL;
    char *start = aligned_alloc(alignment, bytes + alignment);
    assert_non_null(start);
    head *at = (head *)(void *)(start + alignment) - 1;
    *at = (head){all, start, bytes};
    return start + alignment;
}

static void give(void *context, void *block)
{
    ledger *all = context;
    head *at = (head *)block - 1;
    pthread_mutex_lock(&all->lock);
    all->wrong += !block || at->owner != all;
    all->live--;
    pthread_mutex_unlock(&all->lock);
    memset(block, 0xEE, at->bytes); /* whoever still uses it is seen */
    free(at->start);
}

/* ---- one of everything ------------------------------------------------------------------------------------------- */

static tw_status reduce(tw_comm *comm, tw_state *state)
{
    static _Thread_local float gradient[COUNT];
    tw_reducer *reducer;
    tw_status status = tw_reducer_create(comm, "dgc:density=0.01,warmup_steps=0", table, 1, &reducer);
    if (status != TW_OK) return status;
    for (int step = 0; status == TW_OK && step < 3; step++) {
        for (int i = 0; i < COUNT; i++) gradient[i] = (float)(i % 17);
        status = tw_reducer_submit(reducer, 0, gradient);
        if (status == TW_OK) status = tw_reducer_wait(reducer);
    }
    if (status == TW_OK) status = tw_reducer_save_state(reducer, "", state);
    tw_reducer_destroy(reducer);
    return status;
}

static tw_status gossip(tw_comm *comm)
{
    static _Thread_local float weights[COUNT];
    const float *start[] = {weights};
    float *out[] = {weights};
    tw_gossip *all;
    tw_status status = tw_gossip_create(comm, "dpsgd", table, 1, start, &all);
    if (status != TW_OK) return status;
    status = tw_gossip_finish(all, out);
    tw_gossip_destroy(all);
    return status;
}

static void *work(void *argument)
{
    tw_comm *comm = argument;
    tw_state *state = NULL;
    tw_status status = tw_state_create(&state);
    if (status == TW_OK) status = reduce(comm, state);
    if (status == TW_OK) status = gossip(comm);
    tw_state_destroy(state);
    tw_comm_destroy(comm);
    return status == TW_OK ? NULL : (void *)tw_status_name(status);
}

static const char *play(void *part(void *comm))
{
    tw_comm *comms[RANKS];
    pthread_t threads[RANKS];
    const char *why = NULL;
    tw_status status = tw_comm_create_threads(RANKS, comms);
    if (status != TW_OK) return tw_status_name(status);
    for (int r = 0; r < RANKS; r++) assert_int_equal(pthread_create(&threads[r], NULL, part, comms[r]), 0);
    for (int r = 0; r < RANKS; r++) {
        void *said;
        pthread_join(threads[r], &said);
        if (said && (!why || strcmp(why, "TW_ERROR_PEER") == 0)) why = said;
    }
    return why;
}

static const char *work_together(void)
{
    return play(work);
}

static void in_a_world(void *context, int rank, tw_comm *comm)
{
    (void)rank;
    if (gossip(comm) != TW_OK) ++*(int *)context;
}

static void run_world(void)
{
    int failures = 0;
    tw_world *world;
    const tw_world_options options = {.struct_size = sizeof options, .workers = 3, .bandwidth = 1e9};
    assert_ok(tw_world_create(&options, &world));
    assert_ok(tw_world_run(world, in_a_world, &failures));
    assert_int_equal(failures, 0);
    tw_world_destroy(world);
}

/* ---- ends in the wrong order ------------------------------------------------------------------------------------- */

static pthread_barrier_t all_made;

static int is_refused(tw_status status)
{
    return status == TW_ERROR_PEER && strstr(tw_last_error(), "has left") != NULL;
}

/* 0 when each call on what was made on a comm that is destroyed says that this rank has left. */
static int end_wrongly(tw_comm *comm)
{
    static _Thread_local float gradient[COUNT], given[COUNT];
    const float *start[] = {given};
    float *weights[] = {given}, mine = 1;
    tw_reducer *reducer, *hosts;
    tw_outer *outer;
    tw_gossip *walk, *done;
    tw_comm *survivors;
    tw_outer_event event;
    int wrong = tw_reducer_create(comm, "dgc", table, 1, &reducer) != TW_OK;
    wrong += tw_reducer_create(comm, "topk:per_host=2", table, 1, &hosts) != TW_OK;
    wrong += tw_outer_create(comm, "local:every=1", table, 1, &outer) != TW_OK;
    wrong += tw_outer_begin(outer, weights) != TW_OK;
    wrong += tw_gossip_create(comm, "adpsgd-random", table, 1, start, &done) != TW_OK;
    wrong += tw_gossip_create(comm, "adpsgd-random", table, 1, start, &walk) != TW_OK;
    wrong += tw_gossip_finish(done, weights) != TW_OK || tw_gossip_survivors(done, &survivors) != TW_OK;
    wrong += tw_reducer_submit(reducer, 0, gradient) != TW_OK || tw_reducer_wait(reducer) != TW_OK;
    pthread_barrier_wait(&all_made);
    tw_comm_destroy(comm);
    wrong += !is_refused(tw_reducer_submit(reducer, 0, gradient));
    wrong += !is_refused(tw_reducer_submit(hosts, 0, gradient));
    wrong += !is_refused(tw_outer_step(outer, weights, &event));
    wrong += tw_comm_allreduce(survivors, &mine, 1) != TW_ERROR_PEER;
    tw_gossip_destroy(walk);
    tw_gossip_destroy(done);
    tw_comm_destroy(survivors);
    tw_outer_destroy(outer);
    tw_reducer_destroy(hosts);
    tw_reducer_destroy(reducer);
    return wrong;
}

static void *end_wrongly_there(void *comm)
{
    return end_wrongly(comm) ? "a call was not refused" : NULL;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* The allocator can be set once in a process. */
static void in_a_child(void (*test)(void))
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        test();
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void use(ledger *all)
{
    const tw_allocator mine = {.struct_size = sizeof mine, .context = all, .allocate = take, .release = give};
    assert_ok(tw_set_allocator(&mine));
}

static void everything(void)
{
    static ledger all = {.lock = PTHREAD_MUTEX_INITIALIZER};
    use(&all);
    assert_null(work_together());
    run_world();
    assert_true(all.given > 50);
    assert_int_equal(all.live, 0);
    assert_int_equal(all.wrong, 0);
}

/* Whichever block is refused, a call says so, or gets the loss of the rank that said so, and all goes back. */
static void each_refused(void)
{
    static ledger all = {.lock = PTHREAD_MUTEX_INITIALIZER};
    use(&all);
    assert_null(work_together());
    long count = all.given, told = 0;
    for (long n = 1; n <= count; n += 1 + count / 40) {
        all.refuse_at = all.given + n;
        const char *why = work_together();
        if (why && strcmp(why, "TW_ERROR_MEMORY") != 0) fail_msg("block %ld: %s", n, why);
        told += why != NULL;
        assert_int_equal(all.live, 0);
    }
    assert_true(told > 10);
    assert_int_equal(all.wrong, 0);
}

static void any_order(void)
{
    static ledger all = {.lock = PTHREAD_MUTEX_INITIALIZER};
    use(&all);
    pthread_barrier_init(&all_made, NULL, RANKS);
    const char *why = play(end_wrongly_there);
    if (why) fail_msg("%s", why);
    assert_int_equal(all.live, 0);
    assert_int_equal(all.wrong, 0);
}

static void too_late(void)
{
    const tw_allocator mine = {.struct_size = sizeof mine, .allocate = take, .release = give};
    tw_state *state;
    assert_ok(tw_state_create(&state));
    assert_fails(tw_set_allocator(&mine), TW_ERROR_ORDER, "already");
    tw_state_destroy(state);
}

static void not_whole(void)
{
    tw_allocator mine = {.struct_size = sizeof mine, .release = give};
    assert_fails(tw_set_allocator(&mine), TW_ERROR_ARGUMENT, "both functions");
    mine = (tw_allocator){.struct_size = sizeof mine, .allocate = take};
    assert_fails(tw_set_allocator(&mine), TW_ERROR_ARGUMENT, "both functions");
    mine = (tw_allocator){.allocate = take, .release = give};
    assert_fails(tw_set_allocator(&mine), TW_ERROR_ARGUMENT, "struct_size");
    struct {
        tw_allocator known;
        void *later;
    } newer = {{.struct_size = sizeof newer, .allocate = take, .release = give}, &mine};
    assert_fails(tw_set_allocator(&newer.known), TW_ERROR_UNSUPPORTED, "newer");
}

TEST(test_everything_comes_from_it_and_goes_back)
{
    in_a_child(everything);
}

TEST(test_each_block_may_be_refused)
{
    in_a_child(each_refused);
}

TEST(test_a_comm_may_be_destroyed_before_what_was_made_on_it)
{
    in_a_child(any_order);
}

TEST(test_it_is_set_before_anything_is_allocated)
{
    in_a_child(too_late);
}

TEST(test_it_has_both_functions_and_a_size)
{
    in_a_child(not_whole);
}

RUN_TESTS(NULL, NULL)
