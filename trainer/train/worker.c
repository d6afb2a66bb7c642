#include "worker.h"
#include "agree.h"
#include "clip.h"
#include "error.h"
#include "folder.h"
#include "gossip.h"
#include "scheme.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many skipped steps in a row mean that the run has diverged and will not come back. */
#define SKIPPED_LIMIT 10

static tw_status plan_steps(worker *w)
{
    const train_settings *s = &w->settings;
    w->steps_per_epoch = w->learner->steps_per_epoch;
    w->steps = s->steps > 0 ? (uint64_t)s->steps : (uint64_t)s->epochs * w->steps_per_epoch;
    TW_TRY(handicap_parse(s->slow, s->pause, w->rank, w->size, w->steps, &w->handicap));
    TW_TRY(schedule_parse(s->schedule, s->lr, (uint64_t)s->warmup, w->steps, w->steps_per_epoch, &w->schedule));
    if (w->schedule.kind != SCHEDULE_PLATEAU || !w->gossips) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--schedule %s needs a validation loss that all workers share, which they have only at the end with "
                   "--sync %s; use constant, cosine, step or decay",
                   s->schedule, s->sync);
}

static tw_status choose_scheme(worker *w)
{
    const train_settings *s = &w->settings;
    TW_TRY(scheme_check(s->sync));
    size_t index = scheme_find_gossip(s->sync);
    w->gossips = index < tw_gossip_scheme_count();
    w->own_clip = scheme_is_exact(s->sync) ? 0 : s->clip * sqrt(w->size);
    w->synchronous = !w->gossips || tw_gossip_is_synchronous(index);
    if (!w->gossips || s->expect_ratio == 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--expect-ratio %g: --sync %s exchanges weights, not compressed gradients, so it has no message "
                   "ratio; leave the option out, and look at ratio.traffic of the summary",
                   s->expect_ratio, s->sync);
}

static tw_status create_learner(worker *w)
{
    const train_settings *s = &w->settings;
    learner_place place = {w->rank, w->size, (size_t)s->batch, (uint64_t)s->seed, (nn_precision)s->compute};
    TW_TRY(task_learner_create(w->task, &place, &w->learner));
    w->mean_buffers = calloc(w->learner->buffer_count + 1, sizeof *w->mean_buffers);
    return w->mean_buffers ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for the running statistics");
}

static tw_status create_local(worker *w)
{
    TW_TRY(choose_scheme(w));
    TW_TRY(create_learner(w));
    return plan_steps(w);
}

/* A scheme that applies momentum itself would do so with a momentum of its own choice. Where the run has none, and
 * --sync does not speak of it, the scheme has none either. */
static tw_status create_reducer(worker *w)
{
    const train_settings *s = &w->settings;
    const learner *l = w->learner;
    char *plain;
    TW_TRY(tw_reducer_create(w->comm, s->sync, l->tensors, l->tensor_count, &w->reducer));
    if (s->momentum > 0 || tw_reducer_momentum(w->reducer, NULL) == 0 || strstr(s->sync, "momentum=")) return TW_OK;
    tw_reducer_destroy(w->reducer);
    w->reducer = NULL;
    if (asprintf(&plain, "%s%smomentum=0", s->sync, strchr(s->sync, ':') ? "," : ":") < 0)
        return tw_fail(TW_ERROR_MEMORY, "no memory for the spec of --sync");
    tw_status status = tw_reducer_create(w->comm, plain, l->tensors, l->tensor_count, &w->reducer);
    free(plain);
    return status;
}

/* A scheme with momentum of its own leaves none to the optimiser. */
static tw_status resolve_momentum(worker *w, optimiser_settings *resolved)
{
    train_settings *s = &w->settings;
    int nesterov = 0;
    float owned = w->gossips ? 0 : tw_reducer_momentum(w->reducer, &nesterov);
    *resolved = (optimiser_settings){.momentum = (float)s->momentum,
                                     .nesterov = s->nesterov,
                                     .weight_decay = (float)s->weight_decay,
                                     .directed = owned > 0,
                                     .kind = (optimiser_kind)s->optimizer,
                                     .beta2 = (float)s->beta2};
    TW_TRY(optimiser_check(resolved, s->sync));
    if (owned == 0) return TW_OK;
    int scheme = (int)strcspn(s->sync, ":");
    if (s->momentum_given && (float)s->momentum != owned)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--momentum %g: scheme %.*s applies the momentum itself; write --sync %.*s:momentum=%g",
                       s->momentum, scheme, s->sync, scheme, s->sync, s->momentum);
    if (s->nesterov_given && s->nesterov && !nesterov)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--nesterov: scheme %.*s applies the momentum itself; write --sync %.*s:nesterov=on", scheme,
                       s->sync, scheme, s->sync);
    if ((float)s->momentum != owned) s->momentum = owned;
    s->nesterov = nesterov;
    resolved->momentum = owned;
    resolved->nesterov = nesterov;
    return TW_OK;
}

static tw_status create_optimiser(worker *w)
{
    optimiser_settings resolved;
    TW_TRY(resolve_momentum(w, &resolved));
    return optimiser_create(&resolved, w->learner->tensors, w->learner->tensor_count, &w->optimiser);
}

tw_status worker_create(const train_settings *settings, const task *work, tw_comm *comm, worker *w)
{
    *w = (worker){.settings = *settings, .task = work, .comm = comm, .started = tw_clock()};
    w->rank = tw_comm_rank(comm);
    w->size = tw_comm_size(comm);
    w->settings.workers = w->size;
    TW_TRY(agree_status(w, create_local(w)));
    if (!w->gossips) TW_TRY(create_reducer(w));
    return agree_status(w, create_optimiser(w));
}

void worker_release(worker *w)
{
    tw_reducer_destroy(w->reducer);
    tw_gossip_destroy(w->gossip);
    while (w->narrowed_count > 0) tw_comm_destroy(w->narrowed[--w->narrowed_count]);
    free(w->narrowed);
    free(w->weights);
    free(w->gradients);
    optimiser_destroy(w->optimiser);
    task_learner_destroy(w->learner);
    free(w->mean_buffers);
    capture_release(&w->capture);
}

tw_status worker_spread(worker *w)
{
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    size_t count = optimiser_buffers(w->optimiser, buffers);
    TW_TRY(tw_comm_broadcast(w->comm, 0, w->learner->parameters, w->learner->parameter_count * sizeof(float)));
    for (size_t i = 0; i < count; i++)
        TW_TRY(tw_comm_broadcast(w->comm, 0, buffers[i].values, buffers[i].count * sizeof(float)));
    return TW_OK;
}

tw_status worker_average_buffers(worker *w)
{
    size_t count = w->learner->buffer_count;
    if (count == 0) return TW_OK;
    memcpy(w->mean_buffers, w->learner->buffers, count * sizeof(float));
    TW_TRY(tw_comm_allreduce(w->comm, w->mean_buffers, count));
    for (size_t i = 0; i < count; i++) w->mean_buffers[i] /= (float)w->size;
    return TW_OK;
}

static tw_status add_reducer_totals(const worker *w, totals *sums)
{
    tw_stats stats = {.struct_size = sizeof stats};
    TW_TRY(tw_reducer_stats(w->reducer, &stats));
    double *v = sums->values;
    v[TOTAL_BYTES_DENSE] = (double)stats.bytes_dense;
    v[TOTAL_BYTES_SENT] = (double)stats.bytes_sent;
    v[TOTAL_BYTES_RECEIVED] = (double)stats.bytes_received;
    v[TOTAL_COMPRESSED_FP32] = (double)stats.compressed_fp32;
    v[TOTAL_COMPRESSED_PACKET] = (double)stats.compressed_packet;
    v[TOTAL_MESSAGE_FP32] = (double)stats.message_fp32;
    v[TOTAL_MESSAGE_PACKET] = (double)stats.message_packet;
    v[TOTAL_ELEMENTS_SENT] = (double)stats.elements_sent;
    v[TOTAL_ELEMENTS] = (double)stats.elements_total;
    v[TOTAL_STEPS_SKIPPED] = (double)stats.steps_skipped;
    v[TOTAL_SECONDS_CODEC] = stats.seconds_codec;
    v[TOTAL_SECONDS_EXCHANGE] = stats.seconds_exchange;
    v[TOTAL_SECONDS_WAIT] = stats.seconds_wait;
    v[TOTAL_BYTES_BETWEEN] = (double)stats.bytes_between;
    return TW_OK;
}

tw_status worker_totals(const worker *w, totals *sums)
{
    totals now = w->now;
    TW_TRY(w->gossips ? gossip_add_totals(w, &now) : add_reducer_totals(w, &now));
    now.values[TOTAL_SECONDS_WALL] = tw_clock() - w->started;
    for (int i = 0; i < TOTAL_COUNT; i++) sums->values[i] = w->before.values[i] + now.values[i];
    return TW_OK;
}

const char *worker_plan(const worker *w, size_t index)
{
    return w->gossips ? "averaged with other workers'" : tw_reducer_plan(w->reducer, index);
}

tw_status worker_plan_capture(worker *w)
{
    const train_settings *s = &w->settings;
    if (!s->dump_gradients && s->dump_steps)
        return tw_fail(TW_ERROR_ARGUMENT, "--dump-steps %s: --dump-gradients DIR says where to, and is missing",
                       s->dump_steps);
    if (!s->dump_gradients) return TW_OK;
    TW_TRY(capture_parse(s->dump_gradients, s->dump_steps, w->step, w->steps, &w->capture));
    return w->rank == 0 ? folder_make(s->dump_gradients) : TW_OK;
}

/* What is kept is copied first: a gradient that was handed over is the reducer's. */
static tw_status submit(void *context, size_t index, float *gradient)
{
    worker *w = context;
    if (w->gradient_ready) w->gradient_ready(w->pace);
    if (w->capture.state) TW_TRY(capture_put(&w->capture, &w->learner->tensors[index], gradient));
    return w->gossips ? TW_OK : tw_reducer_submit(w->reducer, index, gradient);
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
    clip_norm(l->gradients, l->parameter_count, w->own_clip);
    float *gradient = l->gradients + l->parameter_count;
    for (size_t i = l->tensor_count; i-- > 0;) {
        gradient -= tw_tensor_count(&l->tensors[i]);
        TW_TRY(submit(w, i, gradient));
    }
    return TW_OK;
}

/* One forward and backward pass; to a reducer the gradients go out as they become ready. All ranks know which steps are
 * kept, so a full disk ends all of them alike; by gossip they are not all here. */
static tw_status backward(worker *w, task_score *score)
{
    int due = capture_is_due(&w->capture, w->step + 1);
    if (due && w->rank == 0) TW_TRY(capture_begin(&w->capture));
    TW_TRY(w->own_clip > 0 ? step_clipped(w, score) : w->task->ops->step(w->learner, w->step, submit, w, score));
    if (!due) return TW_OK;
    tw_status saved = w->rank == 0 ? capture_save(&w->capture, w->step + 1) : TW_OK;
    return w->gossips ? saved : agree_status(w, saved);
}

tw_status worker_diverged(const worker *w, const char *seen)
{
    return tw_fail(TW_ERROR_NONFINITE,
                   "the run has diverged: at step %llu %s; a smaller --lr or a longer --warmup may help",
                   (unsigned long long)w->step, seen);
}

tw_status worker_lost(const worker *w)
{
    char seen[96];
    snprintf(seen, sizeof seen, "the gradients of %d steps in a row were NaN or infinite", SKIPPED_LIMIT);
    return worker_diverged(w, seen);
}

/* Ends the exchange and applies the step. TW_ERROR_NONFINITE where a gradient was not finite: no step. */
static tw_status reducer_step(worker *w, float rate)
{
    TW_TRY(tw_reducer_wait(w->reducer));
    if (w->settings.clip > 0 && w->own_clip == 0)
        clip_norm(w->learner->gradients, w->learner->parameter_count, w->settings.clip);
    optimiser_step(w->optimiser, rate, w->learner->gradients, w->learner->parameters);
    return TW_OK;
}

static tw_status apply(worker *w, float rate)
{
    tw_status status = w->gossips ? gossip_step(w, rate) : reducer_step(w, rate);
    if (status != TW_ERROR_NONFINITE) {
        w->skipped_in_a_row = 0;
        return status;
    }
    if (++w->skipped_in_a_row < SKIPPED_LIMIT) return TW_OK;
    if (!w->gossips) return worker_lost(w);
    w->lost = 1;
    return TW_OK;
}

/* The weights and the rate of the step to come. */
static tw_status prepare(worker *w, float rate)
{
    return w->gossips ? gossip_read(w) : tw_reducer_set_rate(w->reducer, rate);
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
    TW_TRY(prepare(w, rate));
    double ready = tw_clock();
    task_score score = {0};
    TW_TRY(backward(w, &score));
    double pass = tw_clock() - ready;
    if (!w->gradient_ready) handicap_suffer(&w->handicap, w->step + 1, pass);
    count_pass(w, pass);
    w->now.values[TOTAL_SECONDS_COMPUTE] += tw_clock() - ready;
    TW_TRY(apply(w, rate));
    w->step++;
    w->now.values[TOTAL_ITEMS] += score.count;
    w->now.values[TOTAL_SECONDS_TRAINING] += tw_clock() - begin;
    if (isfinite(score.loss)) task_score_add(&w->epoch_score, &score);
    *loss = score.loss / score.count;
    return TW_OK;
}
