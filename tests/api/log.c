/* What a program's log is told: few lines, each of them of use to a person. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>

#include "support/ranks.h"

enum { RANKS = 2, MOST = 32, TEXT = 512, COUNT = 1024 };
static const tw_tensor table[] = {{.name = "w", .dims = 2, .shape = {32, 32}}, {.name = "b", .dims = 1, .shape = {32}}};

typedef struct journal {
    pthread_mutex_t lock;
    int count;
    tw_log_level level[MOST];
    char text[MOST][TEXT];
} journal;

static journal told = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void write_down(void *context, tw_log_level level, const char *text)
{
    journal *all = context;
    pthread_mutex_lock(&all->lock);
    if (all->count < MOST) {
        all->level[all->count] = level;
        snprintf(all->text[all->count], TEXT, "%s", text);
    }
    all->count++;
    pthread_mutex_unlock(&all->lock);
}

static int count_lines(tw_log_level level, const char *holds)
{
    int found = 0;
    for (int i = 0; i < told.count && i < MOST; i++) found += told.level[i] == level && strstr(told.text[i], holds);
    return found;
}

static tw_status take_step(tw_reducer *reducer, float value)
{
    static _Thread_local float weights[COUNT], bias[32];
    for (int i = 0; i < COUNT; i++) weights[i] = value;
    memset(bias, 0, sizeof bias);
    tw_status status = tw_reducer_submit(reducer, 1, bias);
    if (status == TW_OK) status = tw_reducer_submit(reducer, 0, weights);
    return status == TW_OK ? tw_reducer_wait(reducer) : status;
}

/* A step, a sick one, and rank 1 leaves. */
static void play(void *context, int rank, tw_comm *comm)
{
    tw_reducer *reducer;
    (void)context;
    assert_ok(tw_reducer_create(comm, "topk", table, 2, &reducer));
    assert_int_equal(take_step(reducer, 1), TW_OK);
    assert_int_equal(take_step(reducer, rank ? NAN : 1), TW_SKIPPED);
    if (rank == 0) assert_int_equal(take_step(reducer, 1), TW_ERROR_PEER);
    tw_reducer_destroy(reducer);
}

static void play_all(void)
{
    told.count = 0;
    run_on_threads(RANKS, play, NULL);
}

TEST(test_what_is_told)
{
    tw_set_log(write_down, &told);
    play_all();
    assert_int_equal(count_lines(TW_LOG_NOTE, "of 2: topk compresses 1 of 2 tensors, in "), 2);
    assert_int_equal(count_lines(TW_LOG_NOTE, "momentum"), 0);
    assert_int_equal(count_lines(TW_LOG_WARNING, "step 2 was skipped"), 2);
    assert_int_equal(count_lines(TW_LOG_WARNING, "rank 0: the group of 2 ranks broke: "), 1);
    assert_int_equal(told.count, 5);
    for (int i = 0; i < told.count; i++)
        if (strncmp(told.text[i], "rank ", 5) != 0 || strchr(told.text[i], '\n')) fail_msg("\"%s\"", told.text[i]);
    tw_set_log(NULL, NULL);
}

TEST(test_who_leaves_is_not_warned_of_it)
{
    tw_comm *comm;
    told.count = 0;
    tw_set_log(write_down, &told);
    assert_ok(tw_comm_create_threads(1, &comm));
    tw_comm_leave(comm);
    tw_comm_destroy(comm);
    assert_int_equal(told.count, 0);
    tw_set_log(NULL, NULL);
}

TEST(test_without_a_log_nothing_is)
{
    tw_set_log(write_down, &told);
    tw_set_log(NULL, &told);
    play_all();
    assert_int_equal(told.count, 0);
}

/* Who applies one of his own as well steps ten times too far, and nothing else shows it. */
TEST(test_a_momentum_of_the_schemes_own)
{
    static const tw_tensor one = {.name = "w", .dims = 1, .shape = {40}};
    tw_comm *comm;
    tw_reducer *reducer;
    told.count = 0;
    tw_set_log(write_down, &told);
    assert_ok(tw_comm_create_threads(1, &comm));
    assert_ok(tw_reducer_create(comm, "dgc", &one, 1, &reducer));
    tw_reducer_destroy(reducer);
    assert_int_equal(count_lines(TW_LOG_NOTE, "rank 0: dgc has a momentum of 0.9 itself; the optimiser takes plain"),
                     1);
    assert_ok(tw_reducer_create(comm, "dgc:momentum=0", &one, 1, &reducer));
    tw_reducer_destroy(reducer);
    assert_int_equal(count_lines(TW_LOG_NOTE, "momentum of"), 1);
    assert_int_equal(count_lines(TW_LOG_NOTE, "compresses"), 0); /* alone it sends nothing */
    tw_comm_destroy(comm);
    tw_set_log(NULL, NULL);
}

TEST(test_a_step_that_is_not_added)
{
    static float step[COUNT + 32];
    const float *parts[] = {step, step + COUNT};
    tw_comm *comm;
    tw_gossip *gossip;
    told.count = 0;
    assert_ok(tw_comm_create_threads(1, &comm));
    assert_ok(tw_gossip_create(comm, "dpsgd", table, 2, parts, &gossip));
    tw_set_log(write_down, &told);
    step[3] = INFINITY;
    assert_int_equal(tw_gossip_add(gossip, parts), TW_SKIPPED);
    assert_int_equal(count_lines(TW_LOG_WARNING, "rank 0: a step held NaN or infinity"), 1);
    tw_gossip_destroy(gossip);
    tw_comm_destroy(comm);
    tw_set_log(NULL, NULL);
}

/* Whoever sets a log sets its context with it, also while others tell something. */
static atomic_int mixed, ended;
static char contexts[2];

static void expect_first(void *context, tw_log_level level, const char *text)
{
    (void)level, (void)text;
    if (context != &contexts[0]) mixed = 1;
}

static void expect_second(void *context, tw_log_level level, const char *text)
{
    (void)level, (void)text;
    if (context != &contexts[1]) mixed = 1;
}

static void *set_in_turn(void *unused)
{
    while (!ended) {
        tw_set_log(expect_first, &contexts[0]);
        tw_set_log(expect_second, &contexts[1]);
        sched_yield();
    }
    return unused;
}

TEST(test_a_log_keeps_its_context)
{
    static float sick[COUNT + 32] = {INFINITY};
    const float *parts[] = {sick, sick + COUNT};
    static float zeros[COUNT + 32];
    const float *start[] = {zeros, zeros + COUNT};
    pthread_t setter;
    tw_comm *comm;
    tw_gossip *gossip;
    assert_ok(tw_comm_create_threads(1, &comm));
    assert_ok(tw_gossip_create(comm, "dpsgd", table, 2, start, &gossip));
    assert_int_equal(pthread_create(&setter, NULL, set_in_turn, NULL), 0);
    for (int i = 0; i < 300; i++) assert_int_equal(tw_gossip_add(gossip, parts), TW_SKIPPED);
    ended = 1;
    pthread_join(setter, NULL);
    assert_int_equal(mixed, 0);
    tw_set_log(NULL, NULL);
    tw_gossip_destroy(gossip);
    tw_comm_destroy(comm);
}

RUN_TESTS(NULL, NULL)
