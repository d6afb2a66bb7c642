#include "error.h"
#include "exchange.h"
#include "worker.h"
#include <stdlib.h>
#include <string.h>

/* Evaluates this worker's part with the averaged statistics in place of its own, which return afterwards. */
static tw_status evaluate_part(worker *w, task_split split, task_score *score)
{
    learner *l = w->learner;
    const size_t bytes = l->buffer_count * sizeof(float);
    const size_t part = w->exchange->staged ? 0 : (size_t)w->rank, parts = w->exchange->staged ? 1 : (size_t)w->size;
    if (bytes == 0) return w->task->ops->evaluate(l, split, part, parts, score);
    float *own = malloc(bytes);
    if (!own) return tw_fail(TW_ERROR_MEMORY, "no memory for the running statistics");
    memcpy(own, l->buffers, bytes);
    memcpy(l->buffers, w->mean_buffers, bytes);
    tw_status status = w->task->ops->evaluate(l, split, part, parts, score);
    memcpy(l->buffers, own, bytes);
    free(own);
    return status;
}

/* All workers are here, by gossip too. */
static tw_status evaluate_together(worker *w, task_split split, task_score *score)
{
    worker_let_sum(w, 1);
    tw_status status = evaluate_part(w, split, score);
    if (status == TW_OK && w->exchange->looked) status = w->exchange->looked(w);
    worker_let_sum(w, w->exchange->replicas);
    return status;
}

static evaluation evaluate_conclude(const worker *w, task_split split, const evaluation_share *sum, int own)
{
    return (evaluation){.split = split,
                        .score = sum->split,
                        .loss = sum->split.loss / sum->split.count,
                        .train_loss = sum->train.loss / sum->train.count,
                        .own = own,
                        .is_cut = sum->stops > 0,
                        .step = w->judged ? w->judged : w->step};
}

tw_status worker_evaluate_own(worker *w, task_split split, evaluation *result)
{
    evaluation_share own = {.train = w->epoch_score};
    TW_TRY(w->task->ops->evaluate(w->learner, split, 0, 1, &own.split));
    own.stops = learner_stops(w->learner);
    *result = evaluate_conclude(w, split, &own, 1);
    return TW_OK;
}

tw_status worker_look(worker *w, task_split split, evaluation_share *own)
{
    *own = (evaluation_share){.train = w->epoch_score};
    TW_TRY(worker_average_buffers(w));
    TW_TRY(evaluate_together(w, split, &own->split));
    own->stops = learner_stops(w->learner);
    return TW_OK;
}

tw_status worker_gather_looks(worker *w, task_split split, const evaluation_share *own, evaluation *result)
{
    evaluation_share sum = {0};
    evaluation_share *all = calloc((size_t)w->size, sizeof *all);
    if (!all) return tw_fail(TW_ERROR_MEMORY, "no memory to hear %d workers", w->size);
    tw_status status = tw_comm_allgather(w->comm, own, sizeof *own, all);
    for (int r = 0; r < w->size; r++) {
        task_score_add(&sum.split, &all[r].split);
        task_score_add(&sum.train, &all[r].train);
        sum.stops += all[r].stops;
    }
    free(all);
    TW_TRY(status);
    *result = evaluate_conclude(w, split, &sum, 0);
    return TW_OK;
}

tw_status worker_evaluate(worker *w, task_split split, evaluation *result)
{
    evaluation_share own;
    TW_TRY(worker_look(w, split, &own));
    return worker_gather_looks(w, split, &own, result);
}
