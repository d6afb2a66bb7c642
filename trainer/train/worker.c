/* worker.c - a worker's stretches and steps, by the functions of its exchange. */
#include "worker.h"
#include "agree.h"
#include "clip.h"
#include "error.h"
#include "exchange.h"
#include "folder.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many skipped steps in a row mean that the run has diverged and will not come back. */
#define SKIPPED_LIMIT 10

/* ---- a run's stretches ------------------------------------------------------------------------------------------- */

tw_status worker_begin(worker *w)
{
    return w->exchange->begin(w);
}

tw_status worker_end(worker *w)
{
    return w->exchange->end ? w->exchange->end(w) : TW_OK;
}

tw_status worker_show_shared(worker *w)
{
    return w->exchange->show_shared ? w->exchange->show_shared(w) : TW_OK;
}

tw_status worker_show_own(worker *w)
{
    return w->exchange->show_own ? w->exchange->show_own(w) : TW_OK;
}

tw_status worker_settle(worker *w)
{
    if (w->exchange->settle) return w->exchange->settle(w);
    return w->pager ? pager_flush(w->pager) : TW_OK;
}

tw_status worker_share(worker *w)
{
    const learner *l = w->learner;
    if (w->exchange->share) return w->exchange->share(w);
    TW_TRY(tw_comm_broadcast(w->comm, 0, l->parameters, l->parameter_count * sizeof(float)));
    if (l->buffer_count > 0) TW_TRY(tw_comm_broadcast(w->comm, 0, l->buffers, l->buffer_count * sizeof(float)));
    return w->pager ? pager_reload(w->pager) : TW_OK;
}

uint32_t worker_checksum(const worker *w)
{
    enum { PIECE = 1 << 20 };
    const learner *l = w->learner;
    uint32_t sum = 0;
    for (size_t at = 0; at < l->parameter_count; at += PIECE) {
        const size_t left = l->parameter_count - at;
        sum = tw_crc32c(sum, l->parameters + at, (left < PIECE ? left : PIECE) * sizeof(float));
        if (w->pager) pager_forget(w->pager);
    }
    return sum;
}

tw_status worker_check_replicas(worker *w)
{
    if (w->exchange->staged) return TW_OK;
    TW_TRY(worker_settle(w));
    return agree_replicas(w, worker_checksum(w));
}

tw_status worker_read(worker *w)
{
    return w->exchange->read ? w->exchange->read(w) : TW_OK;
}

tw_status worker_take_optimiser(const worker *w, int workers, tw_state_source source, void *context)
{
    const tw_state *state = NULL;
    TW_TRY(source(context, w->rank % workers, &state));
    return state ? optimiser_load(w->optimiser, state) : TW_OK;
}

tw_status worker_sum(void *context, float *values, size_t count)
{
    worker *w = context;
    tw_traffic before = {.struct_size = sizeof before}, after = before;
    TW_TRY(tw_comm_traffic(w->comm, &before));
    TW_TRY(tw_comm_allreduce(w->comm, values, count));
    TW_TRY(tw_comm_traffic(w->comm, &after));
    w->summed_sent += (double)(after.bytes_sent - before.bytes_sent);
    w->summed_received += (double)(after.bytes_received - before.bytes_received);
    return TW_OK;
}

void worker_let_sum(worker *w, int allowed)
{
    w->learner->sum = allowed ? worker_sum : NULL;
    w->learner->sum_context = w;
}

/* Of stages each has its own: a sum with zeros changes no bit. */
static tw_status gather_buffers(worker *w)
{
    size_t begin, end;
    w->exchange->statistics(w, &begin, &end);
    memset(w->mean_buffers, 0, w->learner->buffer_count * sizeof(float));
    memcpy(w->mean_buffers + begin, w->learner->buffers + begin, (end - begin) * sizeof(float));
    return tw_comm_allreduce(w->comm, w->mean_buffers, w->learner->buffer_count);
}

tw_status worker_average_buffers(worker *w)
{
    size_t count = w->learner->buffer_count;
    if (count == 0) return TW_OK;
    if (w->exchange->staged) return gather_buffers(w);
    memcpy(w->mean_buffers, w->learner->buffers, count * sizeof(float));
    if (w->learner->buffers_stand) return TW_OK; /* and a mean of equals may be another one by a bit */
    TW_TRY(tw_comm_allreduce(w->comm, w->mean_buffers, count));
    for (size_t i = 0; i < count; i++) w->mean_buffers[i] /= (float)w->size;
    return TW_OK;
}

tw_status worker_totals(const worker *w, totals *sums)
{
    totals now = w->now;
    TW_TRY(w->exchange->add_totals(w, &now));
    now.values[TOTAL_SECONDS_WALL] = tw_clock() - w->started;
    now.values[TOTAL_BYTES_SENT] += w->summed_sent;
    now.values[TOTAL_BYTES_BETWEEN] += w->summed_sent;
    now.values[TOTAL_BYTES_RECEIVED] += w->summed_received;
    now.values[TOTAL_SECONDS_DATA] = w->learner->seconds_waited;
    for (int i = 0; i < TOTAL_COUNT; i++) sums->values[i] = w->before.values[i] + now.values[i];
    return TW_OK;
}

const char *worker_plan(const worker *w, size_t index)
{
    return w->exchange->plan(w, index);
}

tw_status worker_plan_dump(worker *w)
{
    const train_settings *s = &w->settings;
    if (!s->dump_gradients) return TW_OK;
    TW_TRY(dump_parse(s->dump_gradients, s->dump_steps, w->step, w->steps, &w->dump));
    w->dump.here = w->rank == 0;
    return w->dump.here ? folder_make(s->dump_gradients) : TW_OK;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Where it belongs: a gradient that is handed over stands among the learner's. */
static void worker_add_pending(const worker *w, size_t index, float *gradient)
{
    const float *pending = w->pending + (gradient - w->learner->gradients);
    const size_t count = tw_tensor_count(&w->learner->tensors[index]);
    for (size_t i = 0; i < count; i++) gradient[i] += pending[i];
}

static void worker_forget_pending(worker *w)
{
    free(w->pending);
    w->pending = NULL;
}

/* What is kept is copied first: a gradient that was handed over is the exchange's. */
static tw_status worker_submit(void *context, size_t index, float *gradient)
{
    worker *w = context;
    if (w->gradient_ready) w->gradient_ready(w->pace);
    if (w->pending && !w->exchange->take_over) worker_add_pending(w, index, gradient);
    if (w->dump.state) TW_TRY(dump_put(&w->dump, &w->learner->tensors[index], gradient));
    return w->exchange->submit ? w->exchange->submit(w, index, gradient) : TW_OK;
}

static tw_status hold(void *context, size_t index, float *gradient)
{
    (void)context, (void)index, (void)gradient;
    return TW_OK;
}

/* A norm is known when all gradients are: they go out one by one afterwards. */
static tw_status step_clipped(worker *w, task_score *score)
{
    const learner *l = w->learner;
    TW_TRY(w->task->ops->step(w->learner, w->step, hold, w, score));
    /* The first gradients of all workers agree, and their mean is as long as they are. */
    clip_norm(l->tensors, l->tensor_count, l->gradients,
              (double)w->step < w->scheme_warmup ? w->settings.clip : w->own_clip);
    float *gradient = l->gradients + l->parameter_count;
    for (size_t i = l->tensor_count; i-- > 0;) {
        gradient -= tw_tensor_count(&l->tensors[i]);
        TW_TRY(worker_submit(w, i, gradient));
    }
    return TW_OK;
}

/* One forward and backward pass; the gradients go out as they become ready. All ranks know which steps are kept, so a
 * full disk ends all of them alike; where each is at a step of its own, they are not all here. */
static tw_status worker_backward(worker *w, task_score *score, double *waited)
{
    int due = dump_is_due(&w->dump, w->step + 1);
    if (w->exchange->pass) return w->exchange->pass(w, score, waited);
    if (due && w->dump.here) TW_TRY(dump_begin(&w->dump));
    TW_TRY(w->own_clip > 0 ? step_clipped(w, score) : w->task->ops->step(w->learner, w->step, worker_submit, w, score));
    if (!due) return TW_OK;
    tw_status saved = w->dump.here ? dump_save(&w->dump, w->step + 1) : TW_OK;
    return w->exchange->replicas || w->exchange->side_by_side ? agree_status(w, saved) : saved;
}

tw_status worker_diverged(const worker *w, const char *seen)
{
    return tw_fail(TW_ERROR_NONFINITE,
                   "the run has diverged: at step %llu %s; a smaller --lr or a longer --warmup may help",
                   (unsigned long long)w->step, seen);
}

tw_status worker_spoilt(const worker *w)
{
    char seen[96];
    snprintf(seen, sizeof seen, "the gradients of %d steps in a row were NaN or infinite", SKIPPED_LIMIT);
    return worker_diverged(w, seen);
}

static tw_status worker_apply(worker *w, float rate)
{
    tw_status status = w->exchange->apply(w, rate);
    if (status == TW_OK) worker_forget_pending(w);
    if (status != TW_SKIPPED) {
        w->skipped_in_a_row = 0;
        return status;
    }
    if (++w->skipped_in_a_row < SKIPPED_LIMIT) return TW_OK;
    if (w->exchange->replicas) return worker_spoilt(w);
    w->spoilt = 1;
    return TW_OK;
}

/* The weights and the rate of the step to come. */
static tw_status worker_prepare(worker *w, float rate)
{
    TW_TRY(worker_read(w));
    return w->exchange->set_rate ? w->exchange->set_rate(w, rate) : TW_OK;
}

/* Neighbours' differences tell how much passes vary from one to the next, whatever the machine's load does in the long
 * run (von Neumann 1941). */
static void count_pass(worker *w, double seconds)
{
    double difference = w->last_pass > 0 ? seconds - w->last_pass : 0;
    int first = w->now.values[TOTAL_SECONDS_PASS] == 0;
    w->now.values[TOTAL_SECONDS_PASS] += seconds;
    w->now.values[TOTAL_SQUARES_PASS] += difference * difference / 2;
    w->last_pass = first ? 0 : seconds;
}

tw_status worker_step(worker *w, double *loss)
{
    double begin = tw_clock();
    if (w->step % w->steps_per_epoch == 0) w->epoch_score = (task_score){0};
    float rate = (float)schedule_rate(&w->schedule, w->step);
    TW_TRY(worker_prepare(w, rate));
    double ready = tw_clock(), waited = 0;
    task_score score = {0};
    TW_TRY(worker_backward(w, &score, &waited));
    double pass = tw_clock() - ready - waited;
    optimiser_hold(w->optimiser, w->learner->held_tensors);
    if (!w->gradient_ready) slowdown_suffer(&w->slowdown, w->step + 1, pass);
    count_pass(w, pass);
    w->now.values[TOTAL_SECONDS_COMPUTE] += tw_clock() - ready - waited;
    TW_TRY(worker_apply(w, rate));
    w->step++;
    w->step_score = score;
    w->now.values[TOTAL_ITEMS] += score.count;
    w->now.values[TOTAL_SECONDS_TRAINING] += tw_clock() - begin;
    if (isfinite(score.loss)) task_score_add(&w->epoch_score, &score);
    *loss = score.loss / score.count;
    return TW_OK;
}
