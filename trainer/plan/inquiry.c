#include "inquiry.h"
#include "agree.h"
#include "error.h"
#include "experiment.h"
#include "optimiser.h"
#include "schedule.h"
#include "slowdown.h"
#include <math.h>
#include <stdlib.h>

#define USUAL_MOMENTUM 0.9

static tw_plan_optimizer optimizer_of(const train_settings *s)
{
    return s->optimizer == OPTIMISER_SGD ? TW_PLAN_SGD : s->optimizer == OPTIMISER_ADAMW ? TW_PLAN_ADAMW : TW_PLAN_ADAM;
}

/* What exchanges weights has neither a loss that all share nor a message ratio: exchange_weights.c refuses both. */
static int wants_gradients(const train_settings *s)
{
    return s->expect_ratio > 0 || schedule_is_plateau(s->schedule);
}

/* Of the candidates that apply momentum each applies as much, and none has Nesterov's form. */
static int wants_other_momentum(const train_settings *s)
{
    return s->nesterov || (s->momentum_given && s->momentum != USUAL_MOMENTUM);
}

static void ask(const train_settings *s, int workers, uint64_t steps, plan_inquiry *inquiry)
{
    tw_plan_question *q = &inquiry->question;
    q->struct_size = sizeof *q;
    q->workers = workers;
    q->optimizer = optimizer_of(s);
    q->kinds = wants_gradients(s) ? TW_PLAN_GRADIENTS | TW_PLAN_UPDATES : 0;
    q->keeps_momentum = wants_other_momentum(s);
    q->steps = steps;
    q->seed = (uint64_t)s->seed;
    q->simulate = tw_world_play;
}

tw_status plan_ask(const train_settings *s, const task *work, int workers, plan_inquiry *inquiry)
{
    learner *l;
    learner_place place = {0, workers, (size_t)s->batch, (uint64_t)s->seed, (nn_precision)s->compute, NULL};
    TW_TRY(task_learner_create(work, &place, &l));
    int lacks_base = l->based && !s->init_from;
    inquiry->question.adapters = l->based;
    ask(s, workers, s->steps > 0 ? (uint64_t)s->steps : (uint64_t)s->epochs * l->steps_per_epoch, inquiry);
    tw_status status = layout_copy(l->tensors, l->tensor_count, &inquiry->tensors);
    task_learner_destroy(l);
    if (lacks_base)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "what is trained are adapters beside a network that is there; --init-from RUN "
                       "names it");
    return status;
}

void plan_ask_of_table(const train_settings *s, int workers, plan_inquiry *inquiry)
{
    ask(s, workers, (uint64_t)s->steps, inquiry);
}

void plan_ask_of_run(const worker *w, plan_inquiry *inquiry)
{
    tw_plan_question *q = &inquiry->question;
    const double *now = w->now.values;
    const double taken = w->step > 0 ? (double)w->step : 1;
    ask(&w->settings, w->size, w->steps, inquiry);
    q->goes_on = 1;
    q->adapters = w->learner->based;
    q->pass_seconds = now[TOTAL_SECONDS_PASS] / taken;
    inquiry->tensors =
        (layout){.tensors = (tw_tensor *)(uintptr_t)w->learner->tensors, .count = w->learner->tensor_count};
}

void plan_forget(plan_inquiry *inquiry)
{
    layout_release(&inquiry->tensors);
}

/* The pass and what there is beside it, of the slowest rank. */
static tw_status take_slowest(tw_comm *comm, double seconds[2])
{
    int size = tw_comm_size(comm);
    double(*all)[2] = calloc((size_t)size, sizeof *all);
    if (!all) return tw_fail(TW_ERROR_MEMORY, "no memory for the times of %d ranks", size);
    tw_status status = tw_comm_allgather(comm, seconds, sizeof *all, all);
    for (int rank = 0; rank < size && status == TW_OK; rank++)
        for (int i = 0; i < 2; i++) seconds[i] = fmax(seconds[i], all[rank][i]);
    free(all);
    return status;
}

tw_status plan_find_pass(const train_settings *s, const task *work, tw_comm *comm, plan_inquiry *inquiry)
{
    double seconds[2] = {0};
    int agreed = 0;
    tw_status status = sim_measure(s, work, &seconds[0], &seconds[1]);
    if (comm) TW_TRY(agree_ranks(comm, status, &agreed));
    TW_TRY(status);
    if (comm) TW_TRY(take_slowest(comm, seconds));
    inquiry->question.pass_seconds = seconds[0];
    inquiry->question.other_seconds = seconds[1];
    return TW_OK;
}

static tw_status read_factors(const char *slow, const tw_plan_question *q, double *factors)
{
    slowdown h;
    for (int rank = 0; rank < q->workers; rank++) {
        TW_TRY(slowdown_parse(slow, NULL, rank, q->workers, q->steps, &h));
        factors[rank] = h.factor;
    }
    return TW_OK;
}

tw_status plan_answer(const train_settings *s, const tw_world_options *line, plan_inquiry *inquiry, tw_plan **plan)
{
    tw_plan_question q = inquiry->question;
    if (q.workers < 2)
        return tw_fail(TW_ERROR_ARGUMENT, "--workers %d: a worker alone exchanges nothing; say how many there will be",
                       q.workers);
    q.tensors = inquiry->tensors.tensors;
    q.tensor_count = inquiry->tensors.count;
    q.bandwidth = line->bandwidth;
    q.bandwidth_down = line->bandwidth_down;
    q.latency = line->latency;
    double *factors = calloc((size_t)q.workers, sizeof *factors);
    if (!factors) return tw_fail(TW_ERROR_MEMORY, "no memory for the pace of %d workers", q.workers);
    q.factors = factors;
    tw_status status = read_factors(s->slow, &q, factors);
    if (status == TW_OK) status = tw_plan_make(&q, plan);
    free(factors);
    return status;
}

tw_plan_row plan_chosen(const tw_plan *plan)
{
    tw_plan_row row = {.struct_size = sizeof row};
    tw_plan_row_at(plan, tw_plan_choice(plan), &row);
    return row;
}
