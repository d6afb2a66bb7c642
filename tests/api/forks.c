/* A program forks while other threads of it exchange: the child is refused what is its parent's, destroys it, and makes
 * objects of its own; the parent and its peers notice nothing. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thinwire/thinwire_clusters.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_outer.h>
#include <thinwire/thinwire_plan.h>
#include <thinwire/thinwire_plugin.h>
#include <thinwire/thinwire_scheme.h>
#include <unistd.h>

#include "hollow.h"
#include "support/ranks.h"
#include "support/sanitizers.h"

enum { RANKS = 2, COUNT = 1024, STEPS = 6, FORK_AT = 3, PATIENCE = 120 };
static const tw_tensor table[] = {{.name = "w", .dims = 2, .shape = {32, 32}}};
static const tw_range whole = {0, COUNT};

/* One rank's objects. */
typedef struct player {
    tw_comm *comm;
    tw_reducer *reducer;
    tw_gossip *gossip;
    tw_outer *outer;
    tw_clusters *clusters;
    float weights[COUNT], gradient[COUNT], shared[COUNT];
    const char *wrong;
} player;

/* In the child nothing may be asserted: its complaint is its exit code. */
#define CHILD(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "child: line %d: %s\n", __LINE__, tw_last_error());                                        \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define REFUSED(call) CHILD((call) == TW_ERROR_ORDER && strstr(tw_last_error(), "fork"))

static tw_status take_step(tw_reducer *reducer, float *gradient, float value)
{
    for (int i = 0; i < COUNT; i++) gradient[i] = value;
    tw_status status = tw_reducer_submit(reducer, 0, gradient);
    return status == TW_OK ? tw_reducer_wait(reducer) : status;
}

static tw_status look(void *context, const tw_remembered *entry)
{
    (void)context, (void)entry;
    return TW_OK;
}

static void try_comm(tw_comm *comm, float *values)
{
    tw_traffic traffic = {.struct_size = sizeof traffic};
    tw_transport_ops ops = {.struct_size = sizeof ops};
    void *self;
    tw_comm *part;
    tw_reducer *reducer;
    tw_gossip *gossip;
    tw_outer *outer;
    tw_clusters *clusters;
    tw_phantom *phantom;
    static const float noise[2 * 32 * 32 + TW_NOISE_MARGIN];
    const float *starts[] = {values};
    CHILD(tw_comm_size(comm) == RANKS);
    REFUSED(tw_comm_barrier(comm));
    REFUSED(tw_comm_allreduce(comm, values, 4));
    REFUSED(tw_comm_broadcast(comm, 0, values, 4));
    REFUSED(tw_comm_broadcast_packed(comm, 0, values, 1, 4));
    REFUSED(tw_comm_allgather(comm, values, 4, values + 8));
    REFUSED(tw_comm_set_timeout(comm, 1));
    REFUSED(tw_comm_set_patience(comm, 1));
    REFUSED(tw_comm_traffic(comm, &traffic));
    REFUSED(tw_comm_lend(comm, &ops, &self));
    REFUSED(tw_comm_create_part(comm, (int[]){0}, 1, &part));
    tw_comm_leave(comm); /* the parent does not */
    REFUSED(tw_reducer_create(comm, "topk", table, 1, &reducer));
    REFUSED(tw_gossip_create(comm, "dpsgd", table, 1, starts, &gossip));
    REFUSED(tw_outer_create(comm, "local", table, 1, &outer));
    REFUSED(tw_clusters_create(comm, 0, COUNT, &whole, 1, &clusters));
    REFUSED(tw_phantom_create(comm, "topk", table, 1, noise, 1, &phantom));
}

static void try_reducer(tw_reducer *reducer, float *values, tw_state *state)
{
    tw_reducer_counts counts = {.struct_size = sizeof counts};
    const tw_gradient gradient = {.struct_size = sizeof gradient, .data = values};
    int done;
    REFUSED(tw_reducer_submit(reducer, 0, values));
    REFUSED(tw_reducer_submit_with(reducer, 0, &gradient));
    REFUSED(tw_reducer_wait(reducer));
    REFUSED(tw_reducer_wait_for(reducer, 0, &done));
    REFUSED(tw_reducer_wait_tensor(reducer, 0, 0, &done));
    REFUSED(tw_reducer_set_rate(reducer, 1));
    REFUSED(tw_reducer_set_rates(reducer, values));
    REFUSED(tw_reducer_set_gradient_scale(reducer, 1));
    REFUSED(tw_reducer_visit_state(reducer, look, NULL));
    REFUSED(tw_reducer_fill_state(reducer, look, NULL));
    REFUSED(tw_reducer_hand_over(reducer, &values));
    REFUSED(tw_reducer_stats(reducer, &counts));
    REFUSED(tw_reducer_save_state(reducer, "", state));
    REFUSED(tw_reducer_load_state(reducer, "", state));
}

static void try_gossip(tw_gossip *gossip, float *values, tw_state *state)
{
    tw_gossip_counts counts = {.struct_size = sizeof counts};
    tw_comm *survivors;
    float *parts[] = {values};
    const float *steps[] = {values};
    REFUSED(tw_gossip_read(gossip, parts));
    REFUSED(tw_gossip_add(gossip, steps));
    REFUSED(tw_gossip_step(gossip, parts));
    REFUSED(tw_gossip_finish(gossip, parts));
    REFUSED(tw_gossip_survivors(gossip, &survivors));
    REFUSED(tw_gossip_stats(gossip, &counts));
    REFUSED(tw_gossip_visit_state(gossip, look, NULL));
    REFUSED(tw_gossip_save_state(gossip, "", state));
    REFUSED(tw_gossip_load_state(gossip, "", state));
}

static void try_outer(tw_outer *outer, float *values, tw_state *state)
{
    tw_outer_counts counts = {.struct_size = sizeof counts};
    tw_outer_event event;
    float *parts[] = {values};
    REFUSED(tw_outer_begin(outer, parts));
    REFUSED(tw_outer_step(outer, parts, &event));
    REFUSED(tw_outer_set_weight(outer, 1));
    REFUSED(tw_outer_average(outer, parts));
    REFUSED(tw_outer_show_moments(outer, parts, parts));
    REFUSED(tw_outer_read(outer, parts));
    REFUSED(tw_outer_finish(outer, parts));
    REFUSED(tw_outer_stats(outer, &counts));
    REFUSED(tw_outer_save_state(outer, "", state));
    REFUSED(tw_outer_save_apart(outer, "", state));
    REFUSED(tw_outer_load_state(outer, "", state));
}

static void make_own(float *gradient)
{
    tw_comm *comm;
    tw_reducer *reducer;
    CHILD(tw_comm_create_threads(1, &comm) == TW_OK);
    CHILD(tw_reducer_create(comm, "topk", table, 1, &reducer) == TW_OK);
    CHILD(take_step(reducer, gradient, 2) == TW_OK);
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
}

static void be_child(player *self)
{
    tw_state *state;
    alarm(PATIENCE);
    CHILD(tw_state_create(&state) == TW_OK);
    try_comm(self->comm, self->gradient);
    try_reducer(self->reducer, self->gradient, state);
    try_gossip(self->gossip, self->weights, state);
    try_outer(self->outer, self->weights, state);
    float *parts[] = {self->weights};
    REFUSED(tw_clusters_average(self->clusters, parts));
    tw_state_destroy(state);
    tw_clusters_destroy(self->clusters);
    tw_outer_destroy(self->outer);
    tw_gossip_destroy(self->gossip);
    tw_reducer_destroy(self->reducer);
    tw_comm_destroy(self->comm);
    make_own(self->gradient);
    _exit(0);
}

static const char *have_child(player *self)
{
    int status;
    pid_t child = fork();
    if (child == 0) be_child(self);
    if (child < 0 || waitpid(child, &status, 0) != child) return "no child";
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? NULL : "the child failed";
}

static tw_status open_all(player *self)
{
    const float *starts[] = {self->weights};
    tw_status status = tw_reducer_create(self->comm, "topk", table, 1, &self->reducer);
    float *parts[] = {self->shared};
    if (status == TW_OK) status = tw_gossip_create(self->comm, "dpsgd", table, 1, starts, &self->gossip);
    if (status == TW_OK) status = tw_outer_create(self->comm, "local:every=2", table, 1, &self->outer);
    if (status == TW_OK) status = tw_outer_begin(self->outer, parts);
    if (status != TW_OK) return status;
    return tw_clusters_create(self->comm, tw_comm_rank(self->comm), COUNT, &whole, 1, &self->clusters);
}

static tw_status go_on(player *self, float value)
{
    const float *steps[] = {self->gradient};
    float *parts[] = {self->weights};
    tw_status status = take_step(self->reducer, self->gradient, value);
    if (status == TW_OK) status = tw_gossip_read(self->gossip, parts);
    if (status == TW_OK) status = tw_gossip_add(self->gossip, steps);
    float *shared[] = {self->shared};
    tw_outer_event event;
    if (status == TW_OK) status = tw_outer_step(self->outer, shared, &event);
    return status == TW_OK ? tw_clusters_average(self->clusters, shared) : status;
}

/* Rank 0 forks while rank 1 is in its next step. */
static void play(void *players, int rank, tw_comm *comm)
{
    player *self = (player *)players + rank;
    self->comm = comm;
    float *parts[] = {self->weights};
    tw_status status = open_all(self);
    for (int step = 0; status == TW_OK && step < STEPS; step++) {
        if (rank == 0 && step >= FORK_AT && !self->wrong) self->wrong = have_child(self);
        status = go_on(self, (float)(rank + step));
    }
    float *shared[] = {self->shared};
    if (status == TW_OK) status = tw_gossip_finish(self->gossip, parts);
    if (status == TW_OK) status = tw_outer_finish(self->outer, shared);
    if (status != TW_OK && !self->wrong) self->wrong = tw_status_name(status);
    tw_clusters_destroy(self->clusters);
    tw_outer_destroy(self->outer);
    tw_gossip_destroy(self->gossip);
    tw_reducer_destroy(self->reducer);
}

TEST(test_a_child_leaves_its_parent_alone)
{
#ifdef TSAN
    skip(); /* it does not allow threads in the child of a process with threads */
#else
    static player players[RANKS];
    run_on_threads(RANKS, play, players);
    for (int r = 0; r < RANKS; r++)
        if (players[r].wrong) fail_msg("rank %d: %s", r, players[r].wrong);
    assert_memory_equal(players[0].gradient, players[1].gradient, sizeof players[0].gradient);
    assert_memory_equal(players[0].weights, players[1].weights, sizeof players[0].weights);
#endif
}

static void count_call(void *self)
{
    ++*(int *)self;
}

/* What a transport shares with its peers is the parent's: here a count that both processes see. */
TEST(test_a_child_does_not_touch_the_transport)
{
    int *calls = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), status;
    assert_ptr_not_equal(calls, MAP_FAILED);
    tw_transport_ops ops = HOLLOW(count_call);
    ops.leave = count_call;
    tw_comm *comm;
    assert_ok(tw_comm_create_custom(&ops, calls, 0, RANKS, &comm));
    pid_t child = fork();
    if (child == 0) {
        tw_comm_leave(comm);
        tw_comm_destroy(comm);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(*calls, 0);
    tw_comm_destroy(comm);
    assert_int_equal(*calls, 1);
    munmap(calls, sizeof *calls);
}

TEST(test_schemes_by_hand_work_on_in_the_child)
{
    float gradient[COUNT] = {0}, *buffers[] = {gradient};
    tw_scheme *scheme;
    tw_round round = {0};
    int status;
    assert_ok(tw_scheme_create("allreduce", table, 1, 0, 1, &scheme));
    assert_ok(tw_scheme_begin(scheme, buffers, -1));
    pid_t child = fork();
    if (child == 0) {
        while (tw_scheme_next(scheme, &round) == TW_OK && round.kind != TW_ROUND_DONE) continue;
        CHILD(round.kind == TW_ROUND_DONE);
        tw_scheme_destroy(scheme);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    tw_scheme_destroy(scheme);
}

/* ---- a fork while a plug-in loads -------------------------------------------------------------------------------- */

static sem_t is_inside, goes_on;
static pthread_t loader;
static atomic_int holds; /* the loader stops at its next allocation */

static void *take(void *context, size_t alignment, size_t bytes)
{
    (void)context;
    if (atomic_load(&holds) && pthread_equal(pthread_self(), loader)) {
        atomic_store(&holds, 0);
        sem_post(&is_inside);
        sem_wait(&goes_on);
    }
    return aligned_alloc(alignment, bytes);
}

static void give(void *context, void *block)
{
    (void)context;
    free(block);
}

static void *load(void *status)
{
    loader = pthread_self();
    atomic_store(&holds, 1);
    *(tw_status *)status = tw_plugin_load(PLUGIN);
    return NULL;
}

/* The thread that holds the list of schemes is not in the child. */
TEST(test_a_fork_while_a_plugin_loads)
{
#ifdef TSAN
    skip(); /* it takes the lock for held for ever */
#else
    pthread_t thread;
    tw_status loaded;
    int status;
    size_t before = tw_schemes_count();
    assert_int_equal(sem_init(&is_inside, 0, 0) | sem_init(&goes_on, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, load, &loaded), 0);
    sem_wait(&is_inside);
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE);
        CHILD(tw_plugin_load(PLUGIN) == TW_OK);
        CHILD(tw_schemes_count() > before);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(tw_schemes_count(), before);
    sem_post(&goes_on);
    pthread_join(thread, NULL);
    assert_int_equal(loaded, TW_OK);
    assert_true(tw_schemes_count() > before);
#endif
}

int main(void)
{
    static const tw_allocator ours = {.struct_size = sizeof ours, .allocate = take, .release = give};
    if (tw_set_allocator(&ours) != TW_OK) return 1;
    return cmocka_run_group_tests(all_tests, NULL, NULL);
}
