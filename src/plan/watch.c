/* Whether a line is what it was, by the exchanges that go over it anyway. */
#include "error.h"
#include "memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plan.h>

#define CHANGED 2  /* times as slow or as fast: another line */
#define ALIKE 1.25 /* exchanges whose bytes differ by more are not compared */
enum { WINDOW_LEAST = 3, WINDOW_MOST = 1000, CONFIRMED = 2 /* windows in a row that say the same */ };

struct tw_watch {
    size_t window, count; /* exchanges of a window, and how many of it there have been */
    double *bytes, *seconds;
    int begun;          /* the first window is over, in which all is new */
    double known, sent; /* seconds a byte of the line as it is taken to be, and the bytes that had them; 0: unknown */
    int way, times;     /* of the last windows, how many in a row were slower (1) or faster (-1) */
};

tw_status tw_watch_create(size_t window, tw_watch **out)
{
    tw_watch *watch;
    TW_TRY(tw_need(out, "watch"));
    if (window < WINDOW_LEAST || window > WINDOW_MOST)
        return tw_fail(TW_ERROR_ARGUMENT, "a window of %zu exchanges: want %d to %d", window, WINDOW_LEAST,
                       WINDOW_MOST);
    TW_TRY(tw_allocate(1, sizeof *watch + 2 * window * sizeof(double), &watch));
    watch->window = window;
    watch->bytes = (double *)(watch + 1);
    watch->seconds = watch->bytes + window;
    *out = watch;
    return TW_OK;
}

void tw_watch_destroy(tw_watch *watch)
{
    tw_free(watch);
}

static int watch_compare(const void *first, const void *second)
{
    double a = *(const double *)first, b = *(const double *)second;
    return (a > b) - (a < b);
}

static double take_middle(double *values, size_t count)
{
    qsort(values, count, sizeof *values, watch_compare);
    return values[count / 2];
}

int tw_watch_add(tw_watch *watch, double bytes, double seconds, double *middle)
{
    if (!watch || !middle) return 0;
    watch->bytes[watch->count] = bytes > 0 ? bytes : 0; /* a rank that counted less than others would judge by itself */
    watch->seconds[watch->count++] = seconds > 0 ? seconds : 0;
    if (watch->count < watch->window) return 0;
    watch->count = 0;
    middle[0] = take_middle(watch->bytes, watch->window);
    middle[1] = take_middle(watch->seconds, watch->window);
    return 1;
}

/* The rank that comes last waits for nobody: what it waits is the line. */
static double pace_of(const double *middles, int ranks, double *most)
{
    double least = INFINITY;
    *most = 0;
    for (int rank = 0; rank < ranks; rank++, middles += 2) {
        *most = fmax(*most, middles[0]);
        least = fmin(least, middles[1]);
    }
    return least / *most;
}

static double watch_begin(tw_watch *watch, double pace, double bytes)
{
    watch->known = watch->begun ? pace : 0;
    watch->sent = bytes;
    watch->begun = 1;
    watch->times = 0;
    return 1;
}

static int is_alike(double bytes, double others)
{
    return bytes <= ALIKE * others && others <= ALIKE * bytes;
}

double tw_watch_judge(tw_watch *watch, const double *middles, int ranks)
{
    double bytes;
    if (!watch || !middles || ranks < 1) return 1;
    double pace = pace_of(middles, ranks, &bytes);
    if (!(pace > 0 && pace < (double)INFINITY)) return 1; /* nothing was sent, or it took no time */
    if (watch->known == 0 || !is_alike(bytes, watch->sent)) return watch_begin(watch, pace, bytes);
    double times = pace / watch->known;
    int way = times >= CHANGED ? 1 : times * CHANGED <= 1 ? -1 : 0;
    watch->times = way == 0 ? 0 : way == watch->way ? watch->times + 1 : 1;
    watch->way = way;
    if (watch->times < CONFIRMED) return 1;
    watch->known = pace;
    watch->times = 0;
    return times;
}
