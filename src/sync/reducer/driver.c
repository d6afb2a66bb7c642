#include "channel.h"
#include "compress.h"
#include "error.h"
#include "reducer_host.h"
#include "smaller.h"
#include "thread.h"

#include <math.h>
#include <stdio.h>

/* ---- whose time it is; with the lock held ------------------------------------------------------------------------ */

/* Called before `coding` or `under_way` changes. */
static void look_at_clock(tw_driver *driver)
{
    double now = tw_clock(), passed = now - driver->since;
    driver->since = now;
    if (driver->coding)
        driver->seconds.coding += passed;
    else if (driver->under_way)
        driver->seconds.wire += passed;
}

static void set_coding(tw_driver *driver, int change)
{
    look_at_clock(driver);
    driver->coding += change;
}

static void set_under_way(tw_driver *driver, int change)
{
    look_at_clock(driver);
    driver->under_way += change;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* So many others have had their first turn that the lane's message may have one more. The first of a step that clips
 * has to do with all of it. */
static int has_turn(const tw_lane *lane)
{
    const tw_driver *driver = lane->driver;
    size_t at_once = (size_t)driver->coders;
    size_t before = lane->message < at_once ? 0 : lane->message + 1 - at_once;
    if (driver->reducer->clips && before == 0) before = lane->message > 0;
    return driver->coding < driver->coders && driver->begun >= before;
}

static void take_turn(tw_lane *lane)
{
    tw_driver *driver = lane->driver;
    tw_mutex_lock(&driver->lock);
    while (!has_turn(lane)) tw_condition_wait(&driver->changed, &driver->lock);
    set_coding(driver, 1);
    tw_mutex_unlock(&driver->lock);
}

static void give_turn(tw_lane *lane)
{
    tw_driver *driver = lane->driver;
    tw_mutex_lock(&driver->lock);
    set_coding(driver, -1);
    driver->begun += !lane->begun;
    lane->begun = 1;
    tw_condition_wake_all(&driver->changed);
    tw_mutex_unlock(&driver->lock);
}

/* For the last message, in its first turn, which it gives up meanwhile: waits until all others have had theirs. Each of
 * them has a turn, or gets one: the last message is taken when all others have been. */
static void await_others(tw_driver *driver)
{
    tw_mutex_lock(&driver->lock);
    set_coding(driver, -1);
    tw_condition_wake_all(&driver->changed);
    while (driver->begun + 1 < driver->reducer->message_count || driver->coding >= driver->coders)
        tw_condition_wait(&driver->changed, &driver->lock);
    set_coding(driver, 1);
    tw_mutex_unlock(&driver->lock);
}

/* ---- the line ---------------------------------------------------------------------------------------------------- */

static void driver_leave_line(void *context)
{
    tw_lane *lane = context;
    tw_driver *driver = lane->driver;
    tw_mutex_lock(&driver->lock);
    if (driver->passed <= lane->message) driver->passed = lane->message + 1;
    tw_condition_wake_all(&driver->changed);
    tw_mutex_unlock(&driver->lock);
}

/* The message before has been taken earlier, and leaves the line at its end at the latest. */
static void await_line(tw_lane *lane)
{
    tw_driver *driver = lane->driver;
    tw_mutex_lock(&driver->lock);
    while (driver->passed < lane->message) tw_condition_wait(&driver->changed, &driver->lock);
    tw_mutex_unlock(&driver->lock);
}

/* ---- what a message begins and ends with ------------------------------------------------------------------------- */

static double norm_of(const tw_reducer *reducer, size_t first, size_t count)
{
    double sum = 0;
    for (size_t i = first; i < first + count; i++) sum += reducer->squares[i];
    return sqrt(sum);
}

/* Clipping looks at the whole gradient; otherwise a message only needs to know whether its own part is finite. But the
 * last of a step answers for all: the whole may be beyond the bound though no part is. (A NaN elsewhere is not its
 * business: the message that has it skips the step, and this one's part is kept.) */
static double gradient_norm(const tw_reducer *reducer, const tw_message *message)
{
    double own = norm_of(reducer, message->first, message->count);
    if (!reducer->clips && message->first > 0) return own;
    double whole = norm_of(reducer, 0, reducer->count);
    return reducer->clips || isfinite(whole) ? whole : own;
}

/* What the others of the step add to the last message's sum of squares, on the same grounds. */
static double squares_of_others(void *context)
{
    tw_reducer *reducer = context;
    double others = 0;
    await_others(&reducer->driver);
    for (size_t m = 0; m + 1 < reducer->message_count; m++) others += reducer->messages[m].scheme->squares;
    return isfinite(others) ? others : 0;
}

/* Makes a message's gradients floats, and has them measured. With hosts, what is before the rounds has seen to it. */
static void reducer_take_in(tw_reducer *reducer, const tw_message *message)
{
    if (reducer->host.size > 1) return;
    for (size_t i = message->first; i < message->first + message->count; i++) {
        const tw_submission *submitted = &reducer->submitted[i];
        if (submitted->data != reducer->gradients[i] && !submitted->absent)
            tw_submission_get(submitted, reducer->gradients[i], message->scheme->tensors[i - message->first].count);
    }
    if (!tw_scheme_looks(message->scheme)) tw_reducer_measure(reducer, message);
}

/* The last of a step needs what was measured of the others: on the grounds of gradient_norm. Where the norm of the
 * step has to be known before the first message, all of them are taken in by then. */
static tw_status begin_message(tw_reducer *reducer, const tw_message *message)
{
    float **gradients = reducer->exchanged + message->first;
    const unsigned char *absent = reducer->absent + message->first;
    tw_squares_elsewhere others = {message->first == 0 ? squares_of_others : NULL, reducer};
    tw_charge(message->elements, 0);
    if (!reducer->clips) reducer_take_in(reducer, message);
    for (size_t m = 0; reducer->clips && message == reducer->messages && m < reducer->message_count; m++)
        reducer_take_in(reducer, &reducer->messages[m]);
    if (tw_scheme_looks(message->scheme)) return tw_scheme_begin_unseen(message->scheme, gradients, absent, others);
    if (message->first == 0 && reducer->unmeasured && !reducer->clips) await_others(&reducer->driver);
    return tw_scheme_begin_without(message->scheme, gradients, absent, gradient_norm(reducer, message));
}

/* The means as their owners want them. With hosts, what comes after the rounds sees to it. */
static void hand_back(const tw_reducer *reducer, const tw_message *message)
{
    if (reducer->host.size > 1) return;
    for (size_t i = message->first; i < message->first + message->count; i++)
        if (reducer->submitted[i].data != reducer->gradients[i])
            tw_submission_put(&reducer->submitted[i], reducer->gradients[i],
                              message->scheme->tensors[i - message->first].count);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static tw_status driver_exchange(tw_lane *lane, tw_round *round)
{
    switch (round->kind) {
    case TW_ROUND_ALLGATHER:
        return tw_channel_allgather(lane->channel, round->data, round->size, round->capacity, &round->packets,
                                    &round->sizes);
    case TW_ROUND_ALLREDUCE:
        return tw_channel_allreduce(lane->channel, round->dtype, round->values, round->count);
    case TW_ROUND_BROADCAST:
        round->packets = &lane->root_packet;
        round->sizes = &lane->root_size;
        return tw_channel_broadcast(lane->channel, round->root, round->data, round->size, round->capacity,
                                    &lane->root_packet, &lane->root_size);
    case TW_ROUND_ALLTOALL:
        return tw_channel_alltoall(lane->channel, round->packets, round->sizes, round->capacity, &round->packets,
                                   &round->sizes);
    case TW_ROUND_DONE:
        break;
    }
    return TW_OK;
}

/* Bytes that a round brought from the others, or summed. */
static uint64_t round_bytes(const tw_scheme *scheme, const tw_round *round)
{
    if (round->kind == TW_ROUND_ALLREDUCE) return round->count * (round->dtype == TW_F32 ? 4 : 2);
    int packets = round->kind == TW_ROUND_BROADCAST ? 1 : scheme->size;
    uint64_t bytes = 0;
    for (int i = 0; i < packets; i++) bytes += round->sizes[i];
    return bytes;
}

/* Without the turn while others are waited for. What a scheme that compresses has to sum is little, and the message
 * before may be coding for long. */
static tw_status wait_for_others(tw_lane *lane, const tw_scheme *scheme, tw_round *round)
{
    give_turn(lane);
    if (round->kind == TW_ROUND_ALLREDUCE && !tw_leaves_tensors(scheme->ops)) await_line(lane);
    tw_status status = driver_exchange(lane, round);
    take_turn(lane);
    if (status == TW_OK) tw_charge(0, round_bytes(scheme, round));
    return status;
}

/* With the turn, before and after. Of a host's members the first exchanges. */
static tw_status run_rounds(tw_lane *lane)
{
    tw_reducer *reducer = lane->driver->reducer;
    const tw_message *message = &reducer->messages[lane->message];
    tw_round round = {0};
    if (!tw_reducer_is_first(reducer)) return TW_OK;
    TW_TRY(begin_message(reducer, message));
    for (;;) {
        TW_TRY(tw_scheme_next(message->scheme, &round));
        tw_channel_release(lane->channel);
        if (round.kind == TW_ROUND_DONE) break;
        TW_TRY(wait_for_others(lane, message->scheme, &round));
    }
    hand_back(reducer, message);
    return TW_OK;
}

/* With the lock held: the driver's failure, else what is said `otherwise`. */
static tw_status tell_failure(const tw_driver *driver, tw_status otherwise)
{
    return driver->failure == TW_OK ? otherwise : tw_fail(driver->failure, "%s", driver->failure_text);
}

/* A failure is told at once, without a turn: other ranks and lanes wait for what does not come any more. One on a lane
 * breaks the comm, and then the others fail with it: the first is the one to tell. */
static tw_status driver_judge(tw_lane *lane, tw_channel *channel, tw_status status)
{
    tw_driver *driver = lane->driver;
    if (status == TW_OK) return TW_OK;
    tw_channel_give_up(channel, status);
    tw_mutex_lock(&driver->lock);
    int first = tw_channel_broke(lane->channel) || (lane->aside && tw_channel_broke(lane->aside));
    if (driver->failure == TW_OK || first) {
        driver->failure = status;
        snprintf(driver->failure_text, sizeof driver->failure_text, "%s", tw_last_error());
    }
    tw_condition_wake_all(&driver->changed);
    tw_mutex_unlock(&driver->lock);
    return status;
}

/* One rank alone has no comm that breaks. */
static tw_status check_others(const tw_lane *lane)
{
    tw_driver *driver = lane->driver;
    tw_mutex_lock(&driver->lock);
    tw_status status = tell_failure(driver, tw_channel_check(lane->channel));
    tw_mutex_unlock(&driver->lock);
    return status;
}

/* What clips begins with all of the step. */
static tw_status ask_ready(tw_reducer *reducer, const tw_message *message, int *ready)
{
    size_t first = reducer->clips ? 0 : message->first, count = reducer->clips ? reducer->count : message->count;
    *ready = 1;
    if (reducer->clips && message != reducer->messages) return TW_OK;
    for (size_t i = first; *ready && i < first + count; i++)
        TW_TRY(tw_submission_ask(&reducer->submitted[i], i, ready));
    return TW_OK;
}

/* Without a turn, so that nobody is in the way of what makes the gradients ready. Naps between two looks grow, and
 * count as what was asked for, as when peers are waited for. */
static tw_status wait_until_ready(tw_lane *lane)
{
    tw_reducer *reducer = lane->driver->reducer;
    const double SHORTEST = 20e-6, LONGEST = 2e-3;
    const double longest = tw_channel_patience(lane->channel);
    double patience = longest;
    for (double nap = SHORTEST;; nap = fmin(2 * nap, LONGEST)) {
        int ready = 0;
        TW_TRY(ask_ready(reducer, &reducer->messages[lane->message], &ready));
        if (ready) return TW_OK;
        TW_TRY(check_others(lane));
        if (patience <= 0)
            return tw_fail(
                TW_ERROR_SYSTEM,
                "a gradient was not ready within %g seconds: where it may take longer, set a longer patience", longest);
        tw_pause(nap);
        patience -= nap;
    }
}

/* The turn is taken in any case: the messages behind this one wait for it. */
static void driver_take_message(tw_lane *lane)
{
    tw_reducer *reducer = lane->driver->reducer;
    tw_status status = wait_until_ready(lane);
    if (status == TW_OK && lane->aside) status = tw_reducer_host_average(reducer, lane->message, lane->aside);
    driver_judge(lane, lane->channel, status);
    take_turn(lane);
    if (status == TW_OK) status = driver_judge(lane, lane->channel, run_rounds(lane));
    give_turn(lane);
    driver_leave_line(lane);
    if (status == TW_OK && lane->aside)
        driver_judge(lane, lane->aside, tw_reducer_host_spread(reducer, lane->message, lane->aside));
}

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

static tw_lane *next_lane(tw_driver *driver)
{
    return &driver->lanes[driver->taken % (size_t)driver->lane_count];
}

/* Takes the next message through its rounds, with the lock released. */
static void run_next(tw_lane *lane)
{
    tw_driver *driver = lane->driver;
    lane->message = driver->taken++;
    lane->begun = 0;
    set_under_way(driver, 1);
    tw_condition_wake_all(&driver->changed);
    tw_mutex_unlock(&driver->lock);
    driver_take_message(lane);
    tw_mutex_lock(&driver->lock);
    set_under_way(driver, -1);
    driver->done++;
    lane->finished++;
    tw_condition_wake_all(&driver->changed);
}

/* Lanes take messages in order, so that nobody waits for the first turn of one that nobody took. */
static void *serve_lane(void *argument)
{
    tw_lane *lane = argument;
    tw_driver *driver = lane->driver;
    tw_mutex_lock(&driver->lock);
    while (!driver->stopping) {
        if (driver->failure == TW_OK && driver->taken < driver->open && next_lane(driver) == lane)
            run_next(lane);
        else
            tw_condition_wait(&driver->changed, &driver->lock);
    }
    tw_mutex_unlock(&driver->lock);
    return NULL;
}

/* ---- create and release ------------------------------------------------------------------------------------------ */

static void start_step(tw_driver *driver)
{
    driver->open = driver->taken = driver->begun = driver->passed = driver->done = 0;
    for (int l = 0; l < driver->lane_count; l++) driver->lanes[l].finished = 0;
}

/* The first lane has the one that is there. */
static tw_status choose_channel(tw_channel *first, int lane, tw_channel **channel)
{
    if (lane > 0) return tw_channel_create_behind(first, (unsigned)lane, channel);
    *channel = first;
    return TW_OK;
}

static tw_status create_lanes(tw_driver *driver, int count)
{
    const tw_reducer_host *host = &driver->reducer->host;
    for (int l = 0; l < count; l++) {
        tw_lane *lane = &driver->lanes[driver->lane_count++];
        lane->driver = driver;
        TW_TRY(choose_channel(host->between ? host->between : driver->reducer->channel, l, &lane->channel));
        tw_channel_share_line(lane->channel, driver_leave_line, lane);
        if (host->inside) TW_TRY(choose_channel(host->inside, l, &lane->aside));
    }
    return TW_OK;
}

tw_status tw_driver_create(tw_reducer *reducer)
{
    const tw_common_options *common = &reducer->messages[0].scheme->common;
    tw_driver *driver = &reducer->driver;
    int lanes = common->overlap ? (int)(common->in_flight + common->threads - 1) : 1;
    int most = (int)tw_smaller(reducer->message_count, TW_MOST_LANES);
    driver->reducer = reducer;
    driver->coders = (int)common->threads;
    TW_TRY(tw_mutex_create(&driver->lock));
    driver->lock_made = 1;
    TW_TRY(tw_condition_create(&driver->changed));
    driver->condition_made = 1;
    TW_TRY(create_lanes(driver, lanes < most ? lanes : most));
    start_step(driver);
    while (common->overlap && driver->thread_count < driver->lane_count) {
        tw_lane *lane = &driver->lanes[driver->thread_count];
        TW_TRY(tw_thread_start(&lane->thread, serve_lane, lane));
        driver->thread_count++;
    }
    return TW_OK;
}

static void end_threads(tw_driver *driver)
{
    if (!driver->thread_count) return;
    tw_mutex_lock(&driver->lock);
    driver->stopping = 1;
    tw_condition_wake_all(&driver->changed);
    tw_mutex_unlock(&driver->lock);
    for (int l = 0; l < driver->thread_count; l++) tw_thread_join(driver->lanes[l].thread);
}

void tw_driver_release(tw_driver *driver)
{
    end_threads(driver);
    for (int l = 1; l < driver->lane_count; l++) {
        tw_channel_destroy(driver->lanes[l].channel);
        tw_channel_destroy(driver->lanes[l].aside);
    }
    if (driver->condition_made) tw_condition_destroy(&driver->changed);
    if (driver->lock_made) tw_mutex_destroy(&driver->lock);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

void tw_driver_open(tw_driver *driver, size_t open)
{
    tw_mutex_lock(&driver->lock);
    driver->open = open;
    tw_condition_wake_all(&driver->changed);
    tw_mutex_unlock(&driver->lock);
}

/* While a message is under way, the failure of another may not be the first, and gradients are still in use. Its wait
 * ends soon: the comm is broken, or the rank alone. */
tw_status tw_driver_failure(tw_driver *driver)
{
    tw_mutex_lock(&driver->lock);
    tw_status whole = tw_channel_check(driver->lanes[0].channel);
    while ((driver->failure != TW_OK || whole != TW_OK) && driver->under_way)
        tw_condition_wait(&driver->changed, &driver->lock);
    tw_status status = tell_failure(driver, whole);
    tw_mutex_unlock(&driver->lock);
    return status;
}

/* A message, or with `message` beyond the last all of them. */
static int is_over(const tw_driver *driver, size_t message)
{
    size_t lanes = (size_t)driver->lane_count;
    if (driver->failure != TW_OK) return !driver->under_way;
    if (message < driver->reducer->message_count) return driver->lanes[message % lanes].finished > message / lanes;
    return driver->done == driver->reducer->message_count;
}

/* 0 when the deadline has passed. */
static int wait_a_while(tw_driver *driver, double deadline)
{
    if (!driver->thread_count) {
        run_next(next_lane(driver));
        return tw_clock() < deadline;
    }
    if (!isinf(deadline)) return tw_condition_wait_until(&driver->changed, &driver->lock, deadline);
    tw_condition_wait(&driver->changed, &driver->lock);
    return 1;
}

tw_status tw_driver_wait(tw_driver *driver, size_t message, double deadline, int *over)
{
    size_t last = tw_smaller(message, driver->reducer->message_count - 1);
    tw_mutex_lock(&driver->lock);
    int is_first = !driver->waiting && last < driver->open, is_early = 1;
    *over = 0;
    if (is_first) {
        driver->waiting = 1;
        while (is_early && !is_over(driver, message)) is_early = wait_a_while(driver, deadline);
        *over = is_over(driver, message);
        driver->waiting = 0;
        if (*over && message > last && driver->failure == TW_OK) start_step(driver);
    }
    tw_mutex_unlock(&driver->lock);
    if (!is_first) return tw_fail(TW_ERROR_ORDER, "another thread waits for this step: one thread at a time does");
    return *over ? tw_driver_failure(driver) : TW_OK;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

tw_driver_seconds tw_driver_spent(tw_driver *driver)
{
    tw_mutex_lock(&driver->lock);
    look_at_clock(driver);
    tw_driver_seconds seconds = driver->seconds;
    tw_mutex_unlock(&driver->lock);
    return seconds;
}

static void driver_add_traffic(tw_traffic *all, const tw_channel *channel)
{
    tw_traffic one = tw_channel_traffic(channel);
    all->bytes_sent += one.bytes_sent;
    all->bytes_received += one.bytes_received;
    all->messages_sent += one.messages_sent;
    all->messages_received += one.messages_received;
}

tw_traffic tw_driver_traffic(const tw_driver *driver)
{
    tw_traffic all = {0};
    for (int l = 0; l < driver->lane_count; l++) driver_add_traffic(&all, driver->lanes[l].channel);
    return all;
}

tw_traffic tw_driver_traffic_aside(const tw_driver *driver)
{
    tw_traffic all = {0};
    for (int l = 0; l < driver->lane_count; l++)
        if (driver->lanes[l].aside) driver_add_traffic(&all, driver->lanes[l].aside);
    return all;
}
