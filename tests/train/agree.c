/* What ranks decide together: every rank reaches the same verdict, and no rank waits for one that left. */
#include "agree.h"
#include "small_run.h"

#include <pthread.h>

#define RANKS 3

/* One rank's thread; what it does and what came of it. cmocka's asserts belong to the main thread. */
typedef struct rank_thread {
    void (*play)(struct rank_thread *rank);
    pthread_t thread;
    tw_comm *comm;
    const small_run *run;
    worker worker;
    tw_status status;
    char text[1024];
    evaluation evaluation;
} rank_thread;

static void *play_rank(void *argument)
{
    rank_thread *rank = argument;
    rank->play(rank);
    snprintf(rank->text, sizeof rank->text, "%s", rank->status == TW_OK ? "" : tw_last_error());
    worker_release(&rank->worker);
    tw_comm_destroy(rank->comm);
    return NULL;
}

static void play_all(void (*play)(rank_thread *rank), rank_thread ranks[RANKS])
{
    small_run run;
    tw_comm *comms[RANKS];
    small_run_begin(&run, NULL, "cnn");
    assert_ok(tw_comm_create_threads(RANKS, comms));
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (rank_thread){.play = play, .comm = comms[r], .run = &run};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, play_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(ranks[r].thread, NULL);
    small_run_end(&run);
}

static tw_status create(rank_thread *rank)
{
    return worker_create(&rank->run->settings, rank->run->work, rank->comm, &rank->worker);
}

static void fail_on_rank_one(rank_thread *rank)
{
    int agreed = 0, own = tw_comm_rank(rank->comm);
    tw_status status = own == 1 ? tw_fail(TW_ERROR_IO, "the disk of rank %d is full", own) : TW_OK;
    rank->status = agree_ranks(rank->comm, status, &agreed);
    rank->worker.agreed = agreed;
}

static void one_failure_is_everybody_s(void **state)
{
    (void)state;
    rank_thread ranks[RANKS];
    play_all(fail_on_rank_one, ranks);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, TW_ERROR_IO);
        assert_string_equal(ranks[r].text, "the disk of rank 1 is full");
        assert_true(ranks[r].worker.agreed);
    }
}

/* Rank 2's weights lose their lowest bit between two checks. */
static void disturb_rank_two(rank_thread *rank)
{
    worker *w = &rank->worker;
    rank->status = create(rank);
    if (rank->status == TW_OK) rank->status = agree_replicas(w);
    if (rank->status != TW_OK) return;
    if (w->rank == 2) ((uint32_t *)w->learner->parameters)[5] ^= 1;
    rank->status = agree_replicas(w);
}

static void one_wrong_bit_is_noticed_by_all(void **state)
{
    (void)state;
    rank_thread ranks[RANKS];
    play_all(disturb_rank_two, ranks);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, TW_ERROR_STATE);
        assert_non_null(strstr(ranks[r].text, "rank 2"));
        assert_true(ranks[r].worker.diverged && ranks[r].worker.agreed);
    }
}

/* What one rank wants, all hear of: `diverged` tells that this one did. */
static void hear_rank_two(rank_thread *rank)
{
    stop_vote vote = {0};
    int any = tw_comm_rank(rank->comm) == 2, stop = 0;
    rank->status = create(rank);
    if (rank->status != TW_OK) return;
    rank->worker.lost = any;
    rank->status = agree_any(rank->comm, &any);
    if (rank->status == TW_OK) rank->status = agree_to_stop(&rank->worker, &vote, &stop);
    rank->worker.diverged = any && stop;
}

static void one_that_stops_is_heard_by_all(void **state)
{
    (void)state;
    rank_thread ranks[RANKS];
    play_all(hear_rank_two, ranks);
    for (int r = 0; r < RANKS; r++) assert_true(ranks[r].status == TW_OK && ranks[r].worker.diverged);
}

static void evaluate(rank_thread *rank)
{
    rank->status = create(rank);
    if (rank->status == TW_OK) rank->status = worker_evaluate(&rank->worker, TASK_TEST, &rank->evaluation);
}

/* 32 images over 3 workers: the counts are exactly those of one worker over all of them. */
static void evaluation_is_shared_exactly(void **state)
{
    (void)state;
    rank_thread ranks[RANKS];
    play_all(evaluate, ranks);
    rank_thread alone = {0};
    small_run run;
    small_run_begin(&run, NULL, "cnn");
    alone.run = &run;
    assert_ok(tw_comm_create_threads(1, &alone.comm));
    evaluate(&alone);
    assert_int_equal(alone.status, TW_OK);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, TW_OK);
        assert_true(ranks[r].evaluation.score.parts[0] == alone.evaluation.score.parts[0]);
        assert_true(ranks[r].evaluation.loss == ranks[0].evaluation.loss);
        assert_float_equal(ranks[r].evaluation.loss, alone.evaluation.loss, 1e-5);
    }
    worker_release(&alone.worker);
    tw_comm_destroy(alone.comm);
    small_run_end(&run);
}

static void leave_after_two_steps(rank_thread *rank)
{
    double loss;
    rank->status = create(rank);
    uint64_t last = tw_comm_rank(rank->comm) == 1 ? 2 : 12;
    while (rank->status == TW_OK && rank->worker.step < last) rank->status = worker_step(&rank->worker, &loss);
}

static void a_lost_peer_ends_the_others(void **state)
{
    (void)state;
    rank_thread ranks[RANKS];
    play_all(leave_after_two_steps, ranks);
    assert_int_equal(ranks[1].status, TW_OK);
    assert_int_equal(ranks[0].status, TW_ERROR_PEER);
    assert_int_equal(ranks[2].status, TW_ERROR_PEER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_failure_is_everybody_s),     cmocka_unit_test(one_wrong_bit_is_noticed_by_all),
        cmocka_unit_test(one_that_stops_is_heard_by_all), cmocka_unit_test(evaluation_is_shared_exactly),
        cmocka_unit_test(a_lost_peer_ends_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
