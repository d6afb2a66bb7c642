/* A rank played by a whole worker of `thinwire train`; only what makes time pass is the simulation's. */
#include "actor.h"
#include "agree.h"
#include "error.h"
#include "exchange.h"
#include <stdlib.h>
#include <string.h>

typedef struct trainee {
    worker worker;
    pace pace;
} trainee;

static tw_status trainee_create(const sim_setup *setup, tw_comm *comm, void **self)
{
    trainee *t = calloc(1, sizeof *t);
    if (!t) return tw_fail(TW_ERROR_MEMORY, "no memory for a worker");
    *self = t;
    TW_TRY(worker_create(&setup->settings, setup->work, comm, &t->worker));
    if (t->worker.learner->based)
        return tw_fail(TW_ERROR_UNSUPPORTED,
                       "adapters are trained beside a network that has learnt, and a simulation begins with none; "
                       "simulate none with as many --parameters, which tells their times and bytes");
    t->worker.gradient_ready = pace_gradient_ready;
    t->worker.part_passed = pace_part_passed;
    t->worker.pace = &t->pace;
    return pace_begin(&setup->pace, t->worker.rank, t->worker.size, t->worker.steps, t->worker.learner->tensor_count,
                      &t->pace);
}

static const char *trainee_spec(void *self)
{
    return ((trainee *)self)->worker.spec;
}

static uint64_t trainee_steps(void *self)
{
    return ((trainee *)self)->worker.steps;
}

/* Of a pipeline the first stage has each micro-batch's at last. */
static uint64_t trainee_gradients(void *self)
{
    const worker *w = &((trainee *)self)->worker;
    if (!w->exchange->staged) return 1;
    return w->rank == 0 ? w->learner->steps_per_epoch / w->steps_per_epoch : 0;
}

/* A comm does not count what stages send each other. */
static uint64_t trainee_sent(void *self)
{
    const worker *w = &((trainee *)self)->worker;
    totals sums = {0};
    if (!w->exchange->staged || w->exchange->add_totals(w, &sums) != TW_OK) return actor_sent(w->comm);
    return (uint64_t)sums.values[TOTAL_BYTES_SENT];
}

static tw_status trainee_begin(void *self)
{
    worker *w = &((trainee *)self)->worker;
    w->rest = w->steps;
    return worker_begin(w);
}

static tw_status trainee_step(void *self, uint64_t number, double *loss)
{
    trainee *t = self;
    worker *w = &t->worker;
    w->step = number;
    pace_other(&t->pace);
    TW_TRY(worker_step(w, loss));
    if (w->exchange->staged) pace_pause(&t->pace, w->step);
    return w->spoilt ? worker_spoilt(w) : TW_OK;
}

/* The gradients are done with: their array keeps the weights as they were before the workers met. */
static tw_status trainee_meet(worker *w, double *distance)
{
    float *weights = w->learner->parameters, *own = w->learner->gradients;
    TW_TRY(worker_read(w));
    memcpy(own, weights, w->learner->parameter_count * sizeof *own);
    TW_TRY(worker_end(w));
    *distance = actor_distance(own, weights, w->learner->parameter_count);
    return TW_OK;
}

/* Not before all are done: it would delay what others still wait for. */
static tw_status trainee_gather(worker *w)
{
    TW_TRY(tw_comm_barrier(w->comm));
    return worker_settle(w);
}

static tw_status trainee_end(void *self, actor_end *end)
{
    worker *w = &((trainee *)self)->worker;
    const task_metric *metric = &w->task->metrics[0];
    evaluation result;
    if (!w->exchange->replicas) TW_TRY(trainee_meet(w, &end->distance));
    TW_TRY(worker_check_replicas(w));
    if (w->exchange->staged) TW_TRY(trainee_gather(w));
    end->checksum = worker_checksum(w);
    TW_TRY(worker_evaluate(w, task_final(w->task), &result));
    end->parameters = w->learner->parameter_count;
    end->loss = result.loss;
    end->metric = task_metric_value(metric, &result.score);
    end->metric_name = metric->name;
    return TW_OK;
}

static void trainee_destroy(void *self)
{
    if (self) worker_release(&((trainee *)self)->worker);
    free(self);
}

const actor_kind sim_trainee = {trainee_create, trainee_spec, trainee_steps, trainee_gradients, trainee_sent,
                                trainee_begin,  trainee_step, trainee_end,   trainee_destroy};
