/* What ranks decide together: every rank reaches the same verdict, and no rank waits for one that left. */
#include "agree.h"
#include "crew.h"
#include "error.h"
#include "small_run.h"

#define RANKS 3

static void play_all(tw_status (*play)(crew_member *rank), crew_member *ranks, void *context)
{
    small_run run;
    small_run_begin(&run, NULL, "cnn");
    crew_run(ranks, RANKS,
             (crew_member){.play = play, .settings = &run.settings, .work = run.work, .context = context});
    small_run_end(&run);
}

static tw_status fail_on_rank_one(crew_member *rank)
{
    tw_status own = rank->rank == 1 ? tw_fail(TW_ERROR_IO, "the disk of rank %d is full", rank->rank) : TW_OK;
    return agree_ranks(rank->comm, own, &rank->worker.agreed);
}

static void one_failure_is_everybody_s(void **state)
{
    (void)state;
    crew_member ranks[CREW_MOST];
    play_all(fail_on_rank_one, ranks, NULL);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, TW_ERROR_IO);
        assert_string_equal(ranks[r].text, "the disk of rank 1 is full");
        assert_true(ranks[r].worker.agreed);
    }
}

/* Rank 2's weights lose their lowest bit between two checks. */
static tw_status disturb_rank_two(crew_member *rank)
{
    worker *w = &rank->worker;
    TW_TRY(crew_create_worker(rank));
    TW_TRY(agree_replicas(w));
    if (w->rank == 2) ((uint32_t *)w->learner->parameters)[5] ^= 1;
    return agree_replicas(w);
}

static void one_wrong_bit_is_noticed_by_all(void **state)
{
    (void)state;
    crew_member ranks[CREW_MOST];
    play_all(disturb_rank_two, ranks, NULL);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, TW_ERROR_STATE);
        assert_non_null(strstr(ranks[r].text, "rank 2"));
        assert_true(ranks[r].worker.diverged && ranks[r].worker.agreed);
    }
}

/* What one rank wants, all hear of: `context` has who did. */
static tw_status hear_rank_two(crew_member *rank)
{
    stop_vote vote = {0};
    int any = rank->rank == 2, stop = 0;
    TW_TRY(crew_create_worker(rank));
    rank->worker.spoilt = any;
    TW_TRY(agree_any(rank->comm, &any));
    TW_TRY(agree_to_stop(&rank->worker, &vote, &stop));
    ((int *)rank->context)[rank->rank] = any && stop;
    return TW_OK;
}

static void one_that_stops_is_heard_by_all(void **state)
{
    (void)state;
    crew_member ranks[CREW_MOST];
    int heard[RANKS] = {0};
    play_all(hear_rank_two, ranks, heard);
    crew_must_succeed(ranks, RANKS);
    for (int r = 0; r < RANKS; r++) assert_true(heard[r]);
}

static tw_status evaluate(crew_member *rank)
{
    TW_TRY(crew_create_worker(rank));
    return worker_evaluate(&rank->worker, TASK_TEST, &((evaluation *)rank->context)[rank->rank]);
}

/* 32 images over 3 workers: the counts are exactly those of one worker over all of them. */
static void evaluation_is_shared_exactly(void **state)
{
    (void)state;
    crew_member ranks[CREW_MOST];
    evaluation shared[RANKS], alone;
    small_run run;
    play_all(evaluate, ranks, shared);
    crew_must_succeed(ranks, RANKS);
    small_run_begin(&run, NULL, "cnn");
    crew_run(ranks, 1, (crew_member){.play = evaluate, .settings = &run.settings, .work = run.work, .context = &alone});
    crew_must_succeed(ranks, 1);
    small_run_end(&run);
    for (int r = 0; r < RANKS; r++) {
        assert_true(shared[r].score.parts[0] == alone.score.parts[0]);
        assert_true(shared[r].loss == shared[0].loss);
        assert_near(shared[r].loss, alone.loss, 1e-5);
    }
}

static tw_status leave_after_two_steps(crew_member *rank)
{
    double loss;
    TW_TRY(crew_create_worker(rank));
    uint64_t last = rank->rank == 1 ? 2 : 12;
    while (rank->worker.step < last) TW_TRY(worker_step(&rank->worker, &loss));
    return TW_OK;
}

static void a_lost_peer_ends_the_others(void **state)
{
    (void)state;
    crew_member ranks[CREW_MOST];
    play_all(leave_after_two_steps, ranks, NULL);
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
