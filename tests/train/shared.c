/* What the workers of a run make one: the start, running statistics, the evaluation, the sums of a run, its end. */
#include "agree.h"
#include "exchange_gradients.h"
#include "folder.h"
#include "summary.h"
#include "toy.h"

#include <math.h>
#include <thinwire/thinwire_gossip.h>
#include <unistd.h>

enum { RANKS = 4 };

static void run(toy_run *r, tw_status (*part)(crew_member *self), void *context, const char *words)
{
    toy_play(r, RANKS, part, context, NULL, words);
    crew_must_succeed(r->crew, RANKS);
}

/* ---- the start --------------------------------------------------------------------------------------------------- */

static void disturb(float *values, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++) values[i] = (float)(100 * rank) + (float)i;
}

typedef struct spread_state {
    float parameters[TOY_PARAMETERS], optimiser[2 * TOY_PARAMETERS + 1];
} spread_state;

static tw_status spread(crew_member *self)
{
    worker *w = &self->worker;
    spread_state *seen = &((spread_state *)self->context)[self->rank];
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    float *at = seen->optimiser;
    TW_TRY(crew_create_worker(self));
    size_t count = optimiser_buffers(w->optimiser, buffers);
    disturb(w->learner->parameters, TOY_PARAMETERS, self->rank);
    for (size_t i = 0; i < count; i++) disturb(buffers[i].values, buffers[i].count, self->rank);
    TW_TRY(worker_begin(w));
    memcpy(seen->parameters, w->learner->parameters, sizeof seen->parameters);
    for (size_t i = 0; i < count; at += buffers[i++].count)
        memcpy(at, buffers[i].values, buffers[i].count * sizeof *at);
    return TW_OK;
}

TEST(all_begin_with_rank_0s_weights_and_moments)
{
    toy_run r = {0};
    spread_state seen[RANKS] = {0};
    run(&r, spread, seen, "--optimizer adam");
    for (int rank = 0; rank < RANKS; rank++) assert_memory_equal(&seen[rank], &seen[0], sizeof seen[0]);
    assert_true(seen[0].parameters[3] == 3 && seen[0].optimiser[3] == 3);
}

/* ---- running statistics, evaluation ------------------------------------------------------------------------------ */

typedef struct judgement {
    evaluation of_all, own;
    float statistic; /* the worker's, after the evaluation */
} judgement;

static tw_status judge(crew_member *self)
{
    worker *w = &self->worker;
    judgement *j = &((judgement *)self->context)[self->rank];
    TW_TRY(crew_create_worker(self));
    TW_TRY(crew_take_steps(w, 3));
    TW_TRY(worker_evaluate(w, TASK_TEST, &j->of_all));
    j->statistic = *w->learner->buffers;
    return worker_evaluate_own(w, TASK_VALIDATION, &j->own);
}

/* After step 2 worker r has a statistic of 10 r + 2: the mean over four is 17. */
TEST(evaluation_is_with_the_mean_of_all_statistics)
{
    toy_run r = {0};
    judgement seen[RANKS];
    run(&r, judge, seen, "");
    for (int rank = 0; rank < RANKS; rank++) {
        assert_true(r.toy.log[rank].looks[0].statistic == 17);
        assert_true(seen[rank].statistic == (float)(10 * rank + 2));
        assert_true(r.toy.log[rank].looks[1].statistic == (float)(10 * rank + 2)); /* its own, asked for its own */
    }
}

TEST(every_item_is_evaluated_once)
{
    toy_run r = {.toy = {.loss = {1, NAN, 4}, .extra = {[3] = 0.5f}}};
    judgement seen[RANKS];
    run(&r, judge, seen, "");
    for (int rank = 0; rank < RANKS; rank++) {
        const toy_look *look = &r.toy.log[rank].looks[0];
        assert_int_equal(look->split, TASK_TEST);
        assert_int_equal(look->part, rank);
        assert_int_equal(look->parts, RANKS);
        const evaluation *all = &seen[rank].of_all;
        assert_true(all->score.count == TOY_ITEMS && all->score.parts[0] == 45 && !all->own);
        assert_near(all->loss, 5.5 + 0.5, 1e-12);
        assert_near(all->train_loss, (1 + 4) / 2.0 + 1.5, 1e-12); /* NaN is left out, 0 to 3 added */
        const evaluation *own = &seen[rank].own;
        assert_true(own->score.count == TOY_ITEMS && own->own);
        assert_int_equal(r.toy.log[rank].looks[1].split, TASK_VALIDATION);
    }
}

static tw_status judge_at_six(crew_member *self)
{
    worker *w = &self->worker;
    TW_TRY(crew_create_worker(self));
    TW_TRY(crew_take_steps(w, 6));
    return worker_evaluate(w, TASK_TEST, &((judgement *)self->context)[self->rank].of_all);
}

/* An epoch has four steps: the loss over its training data begins anew with the fifth. */
TEST(the_training_loss_is_that_of_the_epoch)
{
    toy_run r = {.toy = {.loss = {100, 100, 100, 100, 3, 5}}};
    judgement seen[RANKS];
    run(&r, judge_at_six, seen, "");
    assert_near(seen[2].of_all.train_loss, 4 + 1.5, 1e-12);
    assert_true(seen[2].of_all.score.count == TOY_ITEMS);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

typedef struct books {
    totals sums;
    tw_reducer_counts stats;
} books;

static tw_status keep_books(crew_member *self)
{
    worker *w = &self->worker;
    books *b = &((books *)self->context)[self->rank];
    TW_TRY(crew_create_worker(self));
    for (int i = 0; i < TOTAL_COUNT; i++) w->before.values[i] = 1000 * i;
    TW_TRY(crew_take_steps(w, 7));
    TW_TRY(worker_totals(w, &b->sums));
    b->stats.struct_size = sizeof b->stats;
    return tw_reducer_stats(reducer_of(w), &b->stats);
}

/* scalecom's leader sends and receives other amounts than the rest, and not everybody has led twice. */
TEST(a_runs_bytes_are_those_the_transport_counted)
{
    toy_run r = {0};
    books seen[RANKS] = {0};
    run(&r, keep_books, seen, "--sync scalecom:min_elements=1,min_sent=1,warmup_steps=0,rate=4");
    for (int rank = 0; rank < RANKS; rank++) {
        const double *v = seen[rank].sums.values;
        const tw_reducer_counts *s = &seen[rank].stats;
        const struct {
            total of;
            double counted;
        } lines[] = {{TOTAL_BYTES_DENSE, (double)s->bytes_dense},
                     {TOTAL_BYTES_SENT, (double)s->bytes_sent},
                     {TOTAL_BYTES_RECEIVED, (double)s->bytes_received},
                     {TOTAL_COMPRESSED_FP32, (double)s->compressed_fp32},
                     {TOTAL_COMPRESSED_PACKET, (double)s->compressed_packet},
                     {TOTAL_MESSAGE_FP32, (double)s->message_fp32},
                     {TOTAL_MESSAGE_PACKET, (double)s->message_packet},
                     {TOTAL_ELEMENTS_SENT, (double)s->elements_sent},
                     {TOTAL_ELEMENTS, (double)s->elements_total},
                     {TOTAL_STEPS_SKIPPED, 0},
                     {TOTAL_ITEMS, 7 * 2},
                     {TOTAL_SECONDS_CODEC, s->seconds_codec},
                     {TOTAL_SECONDS_EXCHANGE, s->seconds_exchange},
                     {TOTAL_SECONDS_WAIT, s->seconds_wait}};
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
            assert_near(v[lines[i].of], 1000 * lines[i].of + lines[i].counted, 1e-6);
        assert_true(s->elements_sent > 0 && s->elements_sent < s->elements_total);
        assert_true(s->message_packet > s->compressed_packet);
    }
    assert_true(seen[0].stats.bytes_sent != seen[0].stats.bytes_received);
}

/* What a learner may do within a step: here after seven of them. */
typedef struct addition {
    float values[2];
    double sent, received, between; /* for it */
} addition;

static tw_status add_up(crew_member *self)
{
    worker *w = &self->worker;
    addition *a = &((addition *)self->context)[self->rank];
    totals before, after;
    TW_TRY(crew_create_worker(self));
    TW_TRY(crew_take_steps(w, 7));
    TW_TRY(worker_totals(w, &before));
    for (int i = 0; i < 2; i++) a->values[i] = (float)((i + 1) * (self->rank + 1));
    TW_TRY(w->learner->sum(w->learner->sum_context, a->values, 2));
    TW_TRY(worker_totals(w, &after));
    a->sent = after.values[TOTAL_BYTES_SENT] - before.values[TOTAL_BYTES_SENT];
    a->received = after.values[TOTAL_BYTES_RECEIVED] - before.values[TOTAL_BYTES_RECEIVED];
    a->between = after.values[TOTAL_BYTES_BETWEEN] - before.values[TOTAL_BYTES_BETWEEN];
    return TW_OK;
}

TEST(what_a_learner_adds_up_is_traffic)
{
    toy_run r = {0};
    addition seen[RANKS] = {0};
    double sent = 0, received = 0;
    run(&r, add_up, seen, "--sync dgc");
    for (int rank = 0; rank < RANKS; rank++) {
        assert_true(seen[rank].values[0] == 10 && seen[rank].values[1] == 20);
        assert_true(seen[rank].between == seen[rank].sent);
        sent += seen[rank].sent;
        received += seen[rank].received;
    }
    assert_true(sent == 2 * (RANKS - 1) * 2 * sizeof(float)); /* of an all-reduce, all ranks together */
    assert_true(received == sent);
}

static tw_status nothing_to_add_up_with(crew_member *self)
{
    TW_TRY(crew_create_worker(self));
    ((int *)self->context)[self->rank] = self->worker.learner->sum == NULL;
    return TW_OK;
}

TEST(a_gossips_learner_is_alone)
{
    toy_run r = {0};
    int alone[RANKS] = {0};
    run(&r, nothing_to_add_up_with, alone, "--sync adpsgd-random");
    for (int rank = 0; rank < RANKS; rank++) assert_int_equal(alone[rank], 1);
}

static tw_status keep_books_of_two_gossips(crew_member *self)
{
    worker *w = &self->worker;
    books *b = &((books *)self->context)[self->rank];
    TW_TRY(crew_create_worker(self));
    for (uint64_t last = 4; last <= 8; last += 4) {
        TW_TRY(worker_begin(w));
        TW_TRY(crew_take_steps(w, last));
        TW_TRY(worker_end(w));
    }
    return worker_totals(w, &b->sums);
}

/* A ring of four: each sends its weights to two neighbours, and has to go to the mean twice. */
TEST(a_gossip_that_was_left_is_counted_once)
{
    toy_run r = {0};
    books seen[RANKS] = {0};
    run(&r, keep_books_of_two_gossips, seen, "--sync dpsgd");
    for (int rank = 0; rank < RANKS; rank++) {
        const double *v = seen[rank].sums.values;
        assert_true(v[TOTAL_BYTES_DENSE] == 8 * (2 * 3 * 4 * TOY_PARAMETERS / 4));
        assert_true(v[TOTAL_ITEMS] == 16);
        assert_true(v[TOTAL_BYTES_SENT] > 8 * 2 * 4 * TOY_PARAMETERS); /* the weights alone */
        assert_true(v[TOTAL_BYTES_SENT] < 2 * 8 * 2 * 4 * TOY_PARAMETERS + 2048);
    }
}

static tw_status gather(crew_member *self)
{
    worker *w = &self->worker;
    TW_TRY(crew_create_worker(self));
    for (int i = 0; i < TOTAL_COUNT; i++) w->before.values[i] = 1e6 * (i + 1) * (self->rank + 1);
    return summary_gather(w, &((books *)self->context)[self->rank].sums);
}

/* 1, 2, 3 and 4 times as much: 2.5 times. */
TEST(a_summary_has_the_mean_over_the_workers)
{
    toy_run r = {0};
    books seen[RANKS] = {0};
    run(&r, gather, seen, "");
    for (int rank = 0; rank < RANKS; rank++)
        for (int i = 0; i < TOTAL_COUNT; i++)
            assert_near(seen[rank].sums.values[i], 2.5e6 * (i + 1), 1000); /* handshakes, seconds */
}

/* What a summary says of totals that a test made up. */
static tw_status sum_up(crew_member *self)
{
    worker *w = &self->worker;
    totals mean;
    evaluation result = {.score = {.loss = 30, .count = 10, .parts = {40}}, .loss = 3, .train_loss = 2};
    TW_TRY(crew_create_worker(self));
    for (int i = 0; i < TOTAL_COUNT; i++) mean.values[i] = 1 << i;
    w->step = 8;
    ((cJSON **)self->context)[self->rank] = summary_json(w, &result, NULL, &mean);
    return TW_OK;
}

static double number(const cJSON *object, const char *group, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(group ? cJSON_GetObjectItem(object, group) : object, name);
    assert_non_null(item);
    return item->valuedouble;
}

static double power(total of)
{
    return 1 << of;
}

TEST(a_summary_says_what_was_counted)
{
    toy_run r = {0};
    cJSON *summaries[RANKS] = {0};
    run(&r, sum_up, summaries, "--sync topk");
    const cJSON *s = summaries[1];
    assert_true(number(s, "bytes", "dense") == power(TOTAL_BYTES_DENSE));
    assert_true(number(s, "bytes", "sent") == power(TOTAL_BYTES_SENT));
    assert_true(number(s, "bytes", "received") == power(TOTAL_BYTES_RECEIVED));
    assert_true(number(s, "ratio", "compressed") == power(TOTAL_COMPRESSED_FP32) / power(TOTAL_COMPRESSED_PACKET));
    assert_true(number(s, "ratio", "message") == power(TOTAL_MESSAGE_FP32) / power(TOTAL_MESSAGE_PACKET));
    assert_true(number(s, "ratio", "traffic") == power(TOTAL_BYTES_DENSE) / power(TOTAL_BYTES_SENT));
    assert_true(number(s, NULL, "density") == power(TOTAL_ELEMENTS_SENT) / power(TOTAL_ELEMENTS));
    assert_true(number(s, NULL, "steps_skipped") == power(TOTAL_STEPS_SKIPPED));
    assert_true(number(s, NULL, "samples_per_second") == RANKS * power(TOTAL_ITEMS) / power(TOTAL_SECONDS_TRAINING));
    assert_true(number(s, "seconds", "compute") == power(TOTAL_SECONDS_COMPUTE));
    assert_true(number(s, "seconds", "codec") == power(TOTAL_SECONDS_CODEC));
    assert_true(number(s, "seconds", "exchange") == power(TOTAL_SECONDS_EXCHANGE));
    assert_true(number(s, "pass", "seconds") == power(TOTAL_SECONDS_PASS) / 8);
    assert_true(number(s, "metric", "value") == 4 && number(s, NULL, "loss") == 3 && number(s, NULL, "epochs") == 2);
    for (int rank = 0; rank < RANKS; rank++) cJSON_Delete(summaries[rank]);
}

/* ---- a worker that is held up, workers that are lost ------------------------------------------------------------- */

static tw_status take_eight(crew_member *self)
{
    TW_TRY(crew_create_worker(self));
    TW_TRY(crew_take_steps(&self->worker, 8));
    return worker_totals(&self->worker, &((books *)self->context)[self->rank].sums);
}

/* What a pause takes counts as computing, but not as what a pass takes on this machine. */
TEST(a_pause_is_taken_by_the_one_it_is_for)
{
    toy_run r = {0};
    books seen[RANKS] = {0};
    run(&r, take_eight, seen, "--pause 2:3:0.3");
    const double *v = seen[2].sums.values;
    assert_true(v[TOTAL_SECONDS_COMPUTE] >= 0.3);
    assert_true(v[TOTAL_SECONDS_COMPUTE] - v[TOTAL_SECONDS_PASS] >= 0.29);
}

/* What rank 2 wants, all hear of. */
static tw_status hear_rank_2(crew_member *self)
{
    worker *w = &self->worker;
    stop_vote vote = {0};
    int any = self->rank == 2, stop = 0;
    TW_TRY(crew_create_worker(self));
    w->spoilt = any;
    TW_TRY(agree_any(w->comm, &any));
    TW_TRY(agree_to_stop(w, &vote, &stop));
    ((int *)self->context)[self->rank] = any && stop;
    return TW_OK;
}

TEST(one_that_stops_is_heard_by_all)
{
    toy_run r = {0};
    int heard[RANKS] = {0};
    run(&r, hear_rank_2, heard, "");
    for (int rank = 0; rank < RANKS; rank++) assert_true(heard[rank]);
}

typedef struct left {
    int rank, size;
    evaluation of_all;
} left;

/* Rank 1 leaves after two steps without a word. */
static tw_status stay_or_leave(crew_member *self)
{
    worker *w = &self->worker;
    left *l = &((left *)self->context)[self->rank];
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(w));
    TW_TRY(crew_take_steps(w, self->rank == 1 ? 2 : 8));
    if (self->rank == 1) return TW_OK;
    TW_TRY(worker_end(w));
    l->rank = w->rank;
    l->size = w->size;
    return worker_evaluate(w, TASK_TEST, &l->of_all);
}

TEST(those_that_are_left_are_the_workers)
{
    toy_run r = {0};
    left seen[RANKS] = {0};
    run(&r, stay_or_leave, seen, "--sync adpsgd-random:survive=on");
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank == 1) continue;
        assert_int_equal(seen[rank].size, RANKS - 1);
        assert_int_equal(seen[rank].rank, rank == 0 ? 0 : rank - 1);
        assert_true(seen[rank].of_all.score.count == TOY_ITEMS && seen[rank].of_all.score.parts[0] == 45);
        assert_memory_equal(r.toy.log[rank].final, r.toy.log[0].final, sizeof r.toy.log[0].final);
    }
}

/* Rank 0 leaves after two steps, and another becomes rank 0 when the others meet. */
static tw_status keep_gradients(crew_member *self)
{
    worker *w = &self->worker;
    int *rank = &((int *)self->context)[self->rank];
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_plan_dump(w));
    TW_TRY(worker_begin(w));
    TW_TRY(crew_take_steps(w, self->rank == 0 ? 2 : 5));
    if (self->rank == 0) return TW_OK;
    TW_TRY(worker_end(w));
    *rank = w->rank;
    TW_TRY(worker_begin(w));
    TW_TRY(crew_take_steps(w, 8));
    return worker_end(w);
}

TEST_IN_FOLDER(gradients_that_are_kept_are_of_one_worker)
{
    toy_run r = {0};
    int seen[RANKS] = {0};
    char words[200], path[FOLDER_PATH];
    snprintf(words, sizeof words, "--sync adpsgd-random:survive=on --dump-steps 1-8 --dump-gradients %s",
             (char *)*state);
    run(&r, keep_gradients, seen, words);
    assert_int_equal(seen[1], 0);
    for (int step = 1; step <= 8; step++) {
        snprintf(path, sizeof path, "%s/step-%06d.safetensors", (char *)*state, step);
        assert_int_equal(access(path, F_OK) == 0, step <= 2);
    }
}

typedef struct account {
    totals before, after; /* the end */
} account;

static tw_status stay_or_leave_a_group(crew_member *self)
{
    worker *w = &self->worker;
    account *sums = &((account *)self->context)[self->rank];
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(w));
    TW_TRY(crew_take_steps(w, self->rank == 1 ? 2 : 8));
    if (self->rank == 1) return TW_OK;
    TW_TRY(worker_totals(w, &sums->before));
    if (worker_end(w) != TW_ERROR_PEER) return tw_fail(TW_ERROR_STATE, "nobody is lost");
    return worker_totals(w, &sums->after);
}

/* Where workers come and go the next generation has the sums of the one that a loss has ended. */
TEST(a_loss_that_ends_a_generation_counts_nothing_twice)
{
    toy_run r = {0};
    account seen[RANKS] = {0};
    toy_begin(&r, &toy_task, NULL, "--sync adpsgd-random:survive=on");
    r.settings.changing = true;
    crew_run(
        r.crew, RANKS,
        (crew_member){.play = stay_or_leave_a_group, .context = seen, .settings = &r.settings, .work = &r.toy.base});
    crew_must_succeed(r.crew, RANKS);
    toy_end(&r);
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank == 1) continue;
        const double *before = seen[rank].before.values, *after = seen[rank].after.values;
        assert_true(before[TOTAL_BYTES_DENSE] > 0);
        assert_true(after[TOTAL_BYTES_DENSE] == before[TOTAL_BYTES_DENSE]);
    }
}

RUN_TESTS(NULL, NULL)
