/* One step after another: what is handed over, waited for, and told between. */
#include "reducer.h"

#include "channel.h"
#include "compress.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "reducer_host.h"

#include <math.h>
#include <string.h>

/* ---- what a step cost ------------------------------------------------------------------------------------------- */

static void account_message(tw_reducer_counts *stats, const tw_message *message)
{
    const tw_account *account = &message->scheme->account;
    if (account->warmup) return;
    size_t compressed = tw_scheme_compressed(message->scheme);
    stats->elements_sent += account->elements_sent;
    stats->elements_total += compressed;
    stats->compressed_fp32 += 4 * compressed;
    stats->compressed_packet += account->packet_bytes;
    stats->message_fp32 += 4 * message->elements;
    stats->message_packet += account->packet_bytes + account->exact_bytes;
}

static void account_step(tw_reducer *reducer, int skipped)
{
    tw_reducer_counts *stats = &reducer->stats;
    uint64_t size = (uint64_t)reducer->size;
    stats->steps++;
    stats->steps_skipped += skipped != 0;
    stats->steps_warmup += reducer->messages[0].scheme->account.warmup != 0;
    stats->bytes_dense += 2 * (size - 1) * 4 * reducer->elements / size;
    if (skipped || !tw_reducer_is_first(reducer)) return;
    for (size_t m = 0; m < reducer->message_count; m++) account_message(stats, &reducer->messages[m]);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Messages up to the first of which a tensor is missing may be exchanged. */
static void tell_driver(tw_reducer *reducer)
{
    size_t ready = reducer->ready;
    while (ready < reducer->message_count && !reducer->messages[ready].missing) ready++;
    if (ready == reducer->ready || (reducer->clips && reducer->missing)) return;
    reducer->ready = ready;
    tw_driver_open(&reducer->driver, ready);
}

/* Where a message's tensors are floats that are not handed over as such: made once, with the first of another type. A
 * host has room of its own. */
static tw_status find_floats(tw_reducer *reducer, tw_message *message, size_t index, const tw_submission *submitted,
                             float **floats)
{
    size_t offset = 0;
    *floats = submitted->data;
    if (submitted->dtype == TW_F32 || reducer->host.size > 1) return TW_OK;
    if (!message->room) TW_TRY(tw_allocate(message->elements, sizeof *message->room, &message->room));
    for (size_t i = message->first; i < index; i++) offset += message->scheme->tensors[i - message->first].count;
    *floats = message->room + offset;
    return TW_OK;
}

/* What is a float and there is still in the cache, so that looking at every element costs little. Anything else is
 * looked at when its message begins, and a host's mean where it is averaged. A scheme that compresses nothing is there
 * to be fast: the thread that computes is not held up for its gradients. One that looks at them in its own pass needs
 * nobody else to. */
static double measure_now(const tw_reducer *reducer, const tw_message *message, size_t index)
{
    const tw_submission *submitted = &reducer->submitted[index];
    int later = submitted->ready || submitted->dtype != TW_F32 || message->scheme->ops->plan == NULL ||
                tw_scheme_looks(message->scheme);
    if (reducer->host.size > 1) return -1;
    if (submitted->absent || (submitted->is_sound && !reducer->clips)) return 0;
    return later ? -1
                 : tw_kernels_best()->sum_squares(submitted->data,
                                                  message->scheme->tensors[index - message->first].count);
}

static tw_status check_index(const tw_reducer *reducer, size_t index)
{
    TW_TRY(tw_reducer_need(reducer));
    if (index < reducer->count) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "there is no tensor %zu: the table has %zu, counted from 0", index,
                   reducer->count);
}

static tw_status hand_over(tw_reducer *reducer, size_t index, const tw_gradient *gradient, int is_sound)
{
    tw_submission submitted;
    float *floats;
    TW_TRY(check_index(reducer, index));
    TW_TRY(tw_need(gradient, "gradient"));
    TW_TRY(tw_submission_read(gradient, index, &submitted));
    submitted.is_sound = is_sound;
    TW_TRY(tw_driver_failure(&reducer->driver));
    if (reducer->submitted[index].data)
        return tw_fail(TW_ERROR_ORDER, "tensor %zu was submitted already in this step", index);
    /* One buffer for the gradients of all layers, in turn, would hold the last one's where all are read. */
    if (!submitted.absent && submitted.data == reducer->latest)
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "the gradient of tensor %zu lies where the one before it does: each has its own memory until wait", index);
    tw_message *message = &reducer->messages[reducer->message_of[index]];
    TW_TRY(find_floats(reducer, message, index, &submitted, &floats));
    reducer->submitted[index] = submitted;
    if (!submitted.absent) reducer->latest = submitted.data;
    reducer->gradients[index] = floats;
    reducer->absent[index] = (unsigned char)submitted.absent;
    reducer->squares[index] = measure_now(reducer, message, index);
    if (reducer->squares[index] < 0) reducer->unmeasured = 1;
    reducer->missing--;
    message->missing--;
    tell_driver(reducer);
    return TW_OK;
}

tw_status tw_reducer_submit_with(tw_reducer *reducer, size_t index, const tw_gradient *gradient)
{
    return hand_over(reducer, index, gradient, 0);
}

tw_status tw_reducer_submit_sound(tw_reducer *reducer, size_t index, const tw_gradient *gradient)
{
    return hand_over(reducer, index, gradient, 1);
}

tw_status tw_reducer_submit(tw_reducer *reducer, size_t index, float *gradient)
{
    tw_gradient plain = {.struct_size = sizeof plain, .data = gradient};
    return tw_reducer_submit_with(reducer, index, &plain);
}

static void start_step(tw_reducer *reducer)
{
    memset(reducer->submitted, 0, reducer->count * sizeof *reducer->submitted);
    for (size_t m = 0; m < reducer->message_count; m++) reducer->messages[m].missing = reducer->messages[m].count;
    reducer->missing = reducer->count;
    reducer->unmeasured = 0;
    reducer->latest = NULL;
    reducer->ready = 0;
}

static int is_skipped(const tw_reducer *reducer)
{
    for (size_t m = 0; m < reducer->message_count; m++)
        if (reducer->messages[m].scheme->skipped) return 1;
    return 0;
}

/* One message was not finite somewhere, so no rank applies this step: the other messages are taken back. */
static tw_status revert_step(tw_reducer *reducer)
{
    for (size_t m = 0; m < reducer->message_count; m++) TW_TRY(tw_scheme_revert(reducer->messages[m].scheme));
    tw_log(TW_LOG_WARNING, "rank %d: step %llu was skipped: a gradient held NaN or infinity, or was above %g",
           reducer->channel->comm->rank, (unsigned long long)reducer->stats.steps, TW_LARGEST_NORM);
    return tw_fail(TW_SKIPPED,
                   "a gradient held NaN or infinity, or was above %g; step %llu was skipped on every worker",
                   TW_LARGEST_NORM, (unsigned long long)reducer->stats.steps);
}

static tw_status finish_step(tw_reducer *reducer)
{
    int skipped = is_skipped(reducer);
    account_step(reducer, skipped);
    tw_status status = skipped ? revert_step(reducer) : TW_OK;
    start_step(reducer);
    return status;
}

/* What is longer than any clock can tell has no end. */
static double deadline_of(double start, double seconds)
{
    const double LONGEST = 1e9;
    return seconds > LONGEST ? INFINITY : start + seconds;
}

static tw_status check_wait(tw_reducer *reducer, double seconds, const int *done)
{
    TW_TRY(tw_reducer_need(reducer));
    TW_TRY(tw_need(done, "done"));
    if (!(seconds >= 0)) return tw_fail(TW_ERROR_ARGUMENT, "a wait of %g seconds; at least 0", seconds);
    return tw_driver_failure(&reducer->driver);
}

/* Who was refused has not waited: another thread does, and counts. */
static void account_wait(tw_reducer *reducer, double start, tw_status status)
{
    if (status != TW_ERROR_ORDER) reducer->stats.seconds_wait += tw_clock() - start;
}

tw_status tw_reducer_wait_for(tw_reducer *reducer, double seconds, int *done)
{
    int over;
    TW_TRY(check_wait(reducer, seconds, done));
    double start = tw_clock();
    if (reducer->missing)
        return tw_fail(TW_ERROR_ORDER, "%zu of %zu tensors were not submitted", reducer->missing, reducer->count);
    tw_status status = tw_driver_wait(&reducer->driver, reducer->message_count, deadline_of(start, seconds), &over);
    account_wait(reducer, start, status);
    TW_TRY(status);
    *done = over;
    return over ? finish_step(reducer) : TW_OK;
}

tw_status tw_reducer_wait(tw_reducer *reducer)
{
    int done;
    return tw_reducer_wait_for(reducer, INFINITY, &done);
}

tw_status tw_reducer_wait_tensor(tw_reducer *reducer, size_t index, double seconds, int *done)
{
    int over = 0;
    TW_TRY(check_wait(reducer, seconds, done));
    TW_TRY(check_index(reducer, index));
    if (!reducer->submitted[index].data)
        return tw_fail(TW_ERROR_ORDER, "tensor %zu was not submitted in this step", index);
    double start = tw_clock();
    size_t message = reducer->message_of[index];
    tw_status status = TW_OK;
    if (message < reducer->ready)
        status = tw_driver_wait(&reducer->driver, message, deadline_of(start, seconds), &over);
    account_wait(reducer, start, status);
    if (status == TW_OK) *done = over;
    return status;
}

static tw_status check_between(const tw_reducer *reducer, const char *what)
{
    TW_TRY(tw_reducer_need(reducer));
    if (reducer->missing == reducer->count) return TW_OK;
    return tw_fail(TW_ERROR_ORDER, "the %s is told before a step's first tensor is submitted", what);
}

tw_status tw_reducer_set_rate(tw_reducer *reducer, float rate)
{
    TW_TRY(check_between(reducer, "rate"));
    for (size_t m = 0; m < reducer->message_count; m++) TW_TRY(tw_scheme_set_rate(reducer->messages[m].scheme, rate));
    return TW_OK;
}

tw_status tw_reducer_set_rates(tw_reducer *reducer, const float *rates)
{
    TW_TRY(check_between(reducer, "rate"));
    TW_TRY(tw_need(rates, "rates"));
    for (size_t i = 0; i < reducer->count; i++) TW_TRY(tw_rate_check(rates[i]));
    for (size_t m = 0; m < reducer->message_count; m++)
        TW_TRY(tw_scheme_set_rates(reducer->messages[m].scheme, rates + reducer->messages[m].first));
    return TW_OK;
}

void tw_reducer_show_weights(tw_reducer *reducer, const float *const *weights)
{
    for (size_t m = 0; m < reducer->message_count; m++)
        reducer->messages[m].scheme->weights = weights + reducer->messages[m].first;
}

void tw_reducer_show_shares(tw_reducer *reducer, const float *shares)
{
    for (size_t m = 0; m < reducer->message_count; m++) reducer->messages[m].scheme->shares = shares;
}

tw_status tw_reducer_set_gradient_scale(tw_reducer *reducer, double scale)
{
    TW_TRY(check_between(reducer, "gradients' scale"));
    for (size_t m = 0; m < reducer->message_count; m++)
        TW_TRY(tw_scheme_set_gradient_scale(reducer->messages[m].scheme, scale));
    return TW_OK;
}
