/* Three things are timed: a small message there and back, a stream each way, both streams at once.
 *
 * A stream's rate is the receiver's: what it got after the first quarter, by its own clock. So neither what buffers
 * swallow at once nor the start of a connection counts. How much it takes to keep a line busy for long enough nobody
 * knows beforehand: streams grow eightfold at most, so that one which a generous buffer took for a fast line's does not
 * last for minutes, and the last one is measured on a line that has just been full.
 *
 * Two streams at once take longer to be at full speed: the word of what has come waits in the queue of the other one,
 * so that TCP's windows open more slowly. They have LONGER times as many messages, and no larger ones, which a
 * transport may announce first: those words would wait in that queue, too. */
#include "link.h"
#include "error.h"
#include "median.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    CHANNEL = 1,
    WORD = 0x7077,
    LEAST_CHUNKS = 64,
    SMALLEST_CHUNK = 1024,
    GROWTH = 8,
    PINGS = 200,
    WARM_UP = 3,
    LONGER = 4,
    REASON = 512
};
#define FIRST_VOLUME 65536.0
#define FASTEST 1.8e9 /* bytes a second: streams are no longer on a line that is faster */
#define BESIDE 0.0005 /* seconds that one direction is waited for while the other may move, too */

static tw_status fail_silent(const link_end *end)
{
    return tw_fail(TW_ERROR_PEER, "rank %d did not answer rank %d within %g seconds", end->peer, end->rank,
                   end->timeout);
}

/* ---- one message ---- */

static tw_status link_finish(const link_end *end, void *request, size_t expected)
{
    size_t size = expected; /* a transport may leave a send's as it is */
    uint32_t check;
    int over = end->ops.poll(end->self, request, end->timeout);
    tw_status status = end->ops.wait(end->self, request, 0, &size, &check);
    if (status == TW_ERROR_PEER && !over) return fail_silent(end);
    if (status == TW_OK && size != expected)
        return tw_fail(TW_ERROR_PACKET, "rank %d sent %zu bytes instead of %zu: do all ranks run the same thinwire?",
                       end->peer, size, expected);
    return status;
}

static tw_status send_value(const link_end *end, double value)
{
    void *request;
    TW_TRY(end->ops.start_send(end->self, end->peer, CHANNEL, &value, sizeof value, WORD, &request));
    return link_finish(end, request, sizeof value);
}

static tw_status receive_value(const link_end *end, double *value)
{
    void *request;
    TW_TRY(end->ops.start_recv(end->self, end->peer, CHANNEL, value, sizeof *value, &request));
    return link_finish(end, request, sizeof *value);
}

/* One value each way at once: a transport may finish no send before its message is received. */
static tw_status swap_values(const link_end *end, double given, double *taken)
{
    void *incoming;
    TW_TRY(end->ops.start_recv(end->self, end->peer, CHANNEL, taken, sizeof *taken, &incoming));
    tw_status sent = send_value(end, given);
    if (sent == TW_OK) return link_finish(end, incoming, sizeof *taken);
    char reason[REASON];
    size_t size;
    uint32_t check;
    snprintf(reason, sizeof reason, "%s", tw_last_error());
    end->ops.wait(end->self, incoming, 0, &size, &check);
    return tw_fail(sent, "%s", reason);
}

/* ---- there and back ---- */

void link_order_times(double *times, size_t count, double *median, double *worst)
{
    qsort(times, count, sizeof *times, median_order);
    *median = times[count / 2];
    *worst = times[count - 1];
}

static tw_status ping(const link_end *end, link_figures *figures)
{
    double halves[PINGS] = {0}, started = tw_clock(), echo;
    int count = -WARM_UP, more = 1; /* the first messages may open connections */
    while (more) {
        double began = tw_clock();
        more = count + 1 < PINGS && (count < WARM_UP || began - started < end->seconds / 2);
        TW_TRY(send_value(end, more));
        TW_TRY(receive_value(end, &echo));
        if (count++ >= 0) halves[count - 1] = (tw_clock() - began) / 2;
    }
    link_order_times(halves, (size_t)count, &figures->median, &figures->worst);
    TW_TRY(send_value(end, figures->median));
    return send_value(end, figures->worst);
}

static tw_status answer_pings(const link_end *end, link_figures *figures)
{
    double more = 1;
    for (int left = WARM_UP + PINGS; more > 0; left--) {
        if (left == 0) return tw_fail(TW_ERROR_PACKET, "rank %d asks rank %d without an end", end->peer, end->rank);
        TW_TRY(receive_value(end, &more));
        TW_TRY(send_value(end, more));
    }
    TW_TRY(receive_value(end, &figures->median));
    return receive_value(end, &figures->worst);
}

/* ---- streams ---- */

/* One direction of what is under way. */
typedef struct flow {
    int outgoing;
    size_t chunk, count, started, done;
    void *requests[LINK_WINDOW];
    double began, ended; /* when a quarter was there, and all of it */
} flow;

static flow make_flow(int outgoing, double volume)
{
    size_t bytes = (size_t)volume, chunk = bytes / LEAST_CHUNKS;
    if (chunk < SMALLEST_CHUNK) chunk = SMALLEST_CHUNK;
    if (chunk > LINK_CHUNK) chunk = LINK_CHUNK;
    return (flow){.outgoing = outgoing, .chunk = chunk, .count = bytes / chunk};
}

static tw_status top_up(const link_end *end, flow *f)
{
    while (f->started < f->count && f->started < f->done + LINK_WINDOW) {
        size_t slot = f->started % LINK_WINDOW;
        TW_TRY(f->outgoing ? end->ops.start_send(end->self, end->peer, CHANNEL, end->out + slot * LINK_CHUNK, f->chunk,
                                                 WORD, &f->requests[slot])
                           : end->ops.start_recv(end->self, end->peer, CHANNEL, end->in + slot * LINK_CHUNK, f->chunk,
                                                 &f->requests[slot]));
        f->started++;
    }
    return TW_OK;
}

static tw_status take_oldest(const link_end *end, flow *f)
{
    void *request = f->requests[f->done++ % LINK_WINDOW];
    TW_TRY(link_finish(end, request, f->chunk));
    if (f->done == f->count / 4) f->began = tw_clock();
    if (f->done == f->count) f->ended = tw_clock();
    return TW_OK;
}

/* Takes the oldest message if it is over, or will be within `seconds`. */
static tw_status take_if_over(const link_end *end, flow *f, double seconds, int *taken)
{
    if (f->done == f->started || !end->ops.poll(end->self, f->requests[f->done % LINK_WINDOW], seconds)) return TW_OK;
    *taken = 1;
    return take_oldest(end, f);
}

static int is_done(const flow *f)
{
    return f->done == f->count;
}

static tw_status move(const link_end *end, flow *out, flow *in, double *silent_since)
{
    int taken = 0, alone = is_done(out) || is_done(in);
    TW_TRY(top_up(end, out));
    TW_TRY(top_up(end, in));
    TW_TRY(take_if_over(end, out, 0, &taken));
    TW_TRY(take_if_over(end, in, 0, &taken));
    if (!taken) TW_TRY(take_if_over(end, is_done(in) ? out : in, alone ? end->timeout : BESIDE, &taken));
    if (taken) *silent_since = tw_clock();
    return taken || tw_clock() - *silent_since < end->timeout ? TW_OK : fail_silent(end);
}

static void take_back(const link_end *end, flow *f)
{
    size_t size;
    uint32_t check;
    while (f->done < f->started) end->ops.wait(end->self, f->requests[f->done++ % LINK_WINDOW], 0, &size, &check);
}

/* Sends and receives so many bytes at once; `in` knows its times afterwards. */
static tw_status stream(const link_end *end, flow *out, flow *in)
{
    tw_status status = TW_OK;
    double silent_since = tw_clock();
    while (status == TW_OK && !(is_done(out) && is_done(in))) status = move(end, out, in, &silent_since);
    if (status == TW_OK) return TW_OK;
    char reason[REASON];
    snprintf(reason, sizeof reason, "%s", tw_last_error());
    take_back(end, out);
    take_back(end, in);
    return tw_fail(status, "%s", reason);
}

static double seconds_of(const flow *in)
{
    return fmax(in->ended - in->began, 1e-9);
}

static double rate_of(const flow *in)
{
    size_t timed = in->count - in->count / 4;
    return (double)(in->chunk * timed) / seconds_of(in);
}

static tw_status send_stream(const link_end *end, double volume, double *rate, double *seconds)
{
    flow out = make_flow(1, volume), in = {0};
    TW_TRY(stream(end, &out, &in));
    TW_TRY(receive_value(end, rate));
    return receive_value(end, seconds);
}

static tw_status receive_stream(const link_end *end, double volume, double *rate, double *seconds)
{
    flow in = make_flow(0, volume), out = {.outgoing = 1};
    TW_TRY(stream(end, &out, &in));
    *rate = rate_of(&in);
    *seconds = seconds_of(&in);
    TW_TRY(send_value(end, *rate));
    return send_value(end, *seconds);
}

typedef tw_status (*streamer)(const link_end *end, double volume, double *rate, double *seconds);

/* That keeps a line of this rate busy for long enough. */
static double volume_for(const link_end *end, double rate)
{
    return fmax(fmin(rate, FASTEST) * end->seconds, FIRST_VOLUME);
}

/* Both ends know the same two figures of a stream, and so the next one. */
static tw_status link_search(const link_end *end, streamer run, double *rate)
{
    double volume = FIRST_VOLUME, largest = volume_for(end, INFINITY), seconds = 0;
    *rate = 0;
    while (seconds < end->seconds / 2) {
        TW_TRY(run(end, volume, rate, &seconds));
        if (volume >= largest) break;
        volume = fmin(fmax(2 * volume, volume_for(end, *rate)), fmin(GROWTH * volume, largest));
    }
    return TW_OK;
}

static tw_status time_stream(const link_end *end, streamer run, double *rate)
{
    double seconds = 0;
    TW_TRY(link_search(end, run, rate));
    return run(end, volume_for(end, *rate), rate, &seconds);
}

static tw_status time_sending(const link_end *end, link_figures *figures)
{
    interface_counts before, after;
    double seconds;
    TW_TRY(link_search(end, send_stream, &figures->rate));
    double volume = volume_for(end, figures->rate);
    interface_read(end->counters, &before);
    TW_TRY(send_stream(end, volume, &figures->rate, &seconds));
    interface_read(end->counters, &after);
    interface_find(&before, &after, volume / 2, figures->interface);
    return TW_OK;
}

/* ---- the whole ---- */

static tw_status time_both(const link_end *end, link_figures *figures, double rate_in)
{
    flow out = make_flow(1, volume_for(end, figures->rate)), in = make_flow(0, volume_for(end, rate_in));
    out.count *= LONGER;
    in.count *= LONGER;
    TW_TRY(stream(end, &out, &in));
    return swap_values(end, rate_of(&in), &figures->rate_both);
}

tw_status link_measure(link_end *end, link_figures *figures)
{
    int leads = end->rank < end->peer;
    double rate_in;
    TW_TRY(leads ? ping(end, figures) : answer_pings(end, figures));
    if (leads) TW_TRY(time_sending(end, figures));
    TW_TRY(time_stream(end, receive_stream, &rate_in));
    if (!leads) TW_TRY(time_sending(end, figures));
    return time_both(end, figures, rate_in);
}
