#include "progress.h"
#include "exchange.h"
#include "interrupt.h"
#include "scheme.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <thinwire/thinwire_plugin.h>
#include <unistd.h>

#define BAR_WIDTH 24
#define BAR_LEAST 4 /* a narrower one is left out */
#define SECONDS_TERMINAL 0.1
#define SECONDS_PIPE 5.0

const char *bytes_text(double bytes, char text[BYTES_TEXT])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    while (bytes >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1000;
        unit++;
    }
    snprintf(text, BYTES_TEXT, "%.*f %s", unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2, bytes, units[unit]);
    return text;
}

#define TIME_TEXT 32
static const char *time_text(double seconds, char text[TIME_TEXT])
{
    unsigned long s = seconds > 0 && seconds < 1e9 ? (unsigned long)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(text, TIME_TEXT, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, TIME_TEXT, "%lu:%02lu", s / 60, s % 60);
    return text;
}

void progress_begin(progress *p, FILE *stream, const worker *w)
{
    double now = tw_clock();
    *p = (progress){.stream = stream, .started = now, .shown = now, .first_step = w->step};
    p->first_items = w->before.values[TOTAL_ITEMS];
    /* A launcher hands what a rank writes through a terminal of its own, and on to who knows what. */
    const char *kind = getenv("TERM");
    bool clears = !kind || strcmp(kind, "dumb") != 0;
    p->terminal = stream && clears && isatty(fileno(stream)) && strcmp(tw_comm_transport(w->comm), "threads") == 0;
}

/* Nobody reads it any more, as after `| head`. */
static void progress_show(progress *p)
{
    if ((fflush(p->stream) != 0 || ferror(p->stream)) && errno == EPIPE) interrupt_ask();
}

static void clear_bar(progress *p)
{
    if (p->bar_stands) fputs("\r\033[K", p->stream);
    p->bar_stands = 0;
}

void progress_say(progress *p, const char *format, ...)
{
    if (!p->stream) return;
    clear_bar(p);
    va_list args;
    va_start(args, format);
    vfprintf(p->stream, format, args);
    va_end(args);
    fputc('\n', p->stream);
    progress_show(p);
}

/* Columns of the terminal, as it is now: a person may have changed it. */
static size_t columns(FILE *stream)
{
    struct winsize size = {0};
    return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* A line that ran over the terminal's edge could not be cleared again. */
static void show_bar(progress *p, const worker *w, const char *text)
{
    char bar[BAR_WIDTH + 1];
    size_t length = strlen(text), room = columns(p->stream) - 1, width = BAR_WIDTH;
    if (length + BAR_LEAST + 3 > room)
        width = 0;
    else if (length + width + 3 > room)
        width = room - length - 3;
    size_t filled = (size_t)(w->step * width / w->steps);
    memset(bar, '#', filled);
    memset(bar + filled, '.', width - filled);
    fputc('\r', p->stream);
    if (width > 0) fprintf(p->stream, "[%.*s] ", (int)width, bar);
    fprintf(p->stream, "%.*s\033[K", (int)room, text);
    p->bar_stands = 1;
}

void progress_step(progress *p, const worker *w, double loss, const totals *sums)
{
    double now = tw_clock(), since = p->terminal ? SECONDS_TERMINAL : SECONDS_PIPE;
    if (!p->stream || now - p->shown < since) return;
    p->shown = now;
    double steps_a_second = (double)(w->step - p->first_step) / (now - p->started);
    const int counting = w->exchange->staged ? 1 : w->size; /* workers with items of their own */
    double speed = (sums->values[TOTAL_ITEMS] - p->first_items) * counting / (now - p->started);
    char text[160], left[TIME_TEXT], sent[BYTES_TEXT];
    snprintf(text, sizeof text, "step %llu/%llu  loss %.4f  %.0f %s/s  %s sent  ETA %s", (unsigned long long)w->step,
             (unsigned long long)w->steps, loss, speed, w->task->items,
             bytes_text(sums->values[TOTAL_BYTES_SENT], sent),
             time_text((double)(w->steps - w->step) / steps_a_second, left));
    if (p->terminal)
        show_bar(p, w, text);
    else
        fprintf(p->stream, "%s\n", text);
    progress_show(p);
}

/* With hosts, a worker that also speaks for the others of its host. */
const char *progress_senders(const worker *w)
{
    if (w->settings.pipeline) return "by the first stage";
    return scheme_number(w->settings.sync, "per_host") > 1 ? "by the first worker of a host" : "by rank 0";
}

/* Whose weights the figures are of, where that is not what the line says of the step. */
static const char *progress_whose(const worker *w, const evaluation *result, char text[64])
{
    if (w->judged) snprintf(text, 64, " (weights of step %llu)", (unsigned long long)result->step);
    return w->judged ? text : result->own ? " (rank 0's)" : "";
}

void progress_epoch(progress *p, const worker *w, const evaluation *result, const totals *sums)
{
    char sent[BYTES_TEXT], passed[TIME_TEXT], metric[TASK_METRIC_TEXT], of[64];
    progress_say(p, "epoch %-3llu step %-7llu train loss %.4f  %s loss %.4f  %s%s  %s sent %s  %s",
                 (unsigned long long)((w->step + w->steps_per_epoch - 1) / w->steps_per_epoch),
                 (unsigned long long)w->step, result->train_loss, task_split_name(result->split), result->loss,
                 task_metric_text(w->task->metrics, &result->score, metric), progress_whose(w, result, of),
                 bytes_text(sums->values[TOTAL_BYTES_SENT], sent), progress_senders(w),
                 time_text(sums->values[TOTAL_SECONDS_WALL], passed));
    if (!w->task->tell) return;
    char more[256] = "";
    w->task->tell(&result->score, more, sizeof more);
    progress_say(p, "          %s", more);
}
