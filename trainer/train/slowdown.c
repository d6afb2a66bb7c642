#include "slowdown.h"
#include "error.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOWEST 1e6
#define LONGEST 1e6 /* seconds */
#define MOST_NUMBERS 3

/* One list as it is read. */
typedef struct list {
    const char *option, *form, *text, *entry;
} list;

static tw_status slowdown_refuse(const list *l, const char *fault)
{
    return tw_fail(TW_ERROR_ARGUMENT, "%s %s: '%.*s' %s; write %s,...", l->option, l->text, (int)strcspn(l->entry, ","),
                   l->entry, fault, l->form);
}

/* The numbers of an entry, which are between colons; the entry ends at a comma or at the list's end. */
static tw_status read_numbers(const list *l, size_t count, double numbers[MOST_NUMBERS])
{
    const char *at = l->entry;
    for (size_t i = 0; i < count; i++) {
        char *end;
        numbers[i] = strtod(at, &end);
        int separated = i + 1 < count ? *end == ':' : *end == ',' || *end == '\0';
        if (end == at || !separated || !isfinite(numbers[i])) return slowdown_refuse(l, "cannot be read");
        at = end + 1;
    }
    return TW_OK;
}

static int slowdown_is_whole(double number, double least, double end)
{
    return number >= least && number < end && number == floor(number);
}

static tw_status read_rank(const list *l, double rank, int size)
{
    char fault[64];
    if (slowdown_is_whole(rank, 0, size)) return TW_OK;
    snprintf(fault, sizeof fault, "names no rank from 0 to %d", size - 1);
    return slowdown_refuse(l, fault);
}

static const char *next_entry(const char *entry)
{
    const char *comma = strchr(entry, ',');
    return comma ? comma + 1 : NULL;
}

/* One of two factors would not count, whichever was meant. */
static tw_status check_named_once(const list *l, double rank)
{
    for (const char *before = l->text; before != l->entry; before = next_entry(before))
        if (strtod(before, NULL) == rank) return slowdown_refuse(l, "names a rank a second time");
    return TW_OK;
}

static tw_status take_slow(const list *l, int rank, int size, slowdown *h)
{
    double numbers[MOST_NUMBERS];
    TW_TRY(read_numbers(l, 2, numbers));
    TW_TRY(read_rank(l, numbers[0], size));
    TW_TRY(check_named_once(l, numbers[0]));
    if (!(numbers[1] >= 1 && numbers[1] <= SLOWEST))
        return slowdown_refuse(l, "has a factor that is not between 1 and 1e6");
    if ((int)numbers[0] == rank) h->factor = numbers[1];
    if (numbers[1] > h->greatest) h->greatest = numbers[1];
    return TW_OK;
}

static tw_status take_pause(const list *l, int rank, int size, uint64_t steps, slowdown *h)
{
    double numbers[MOST_NUMBERS];
    TW_TRY(read_numbers(l, 3, numbers));
    TW_TRY(read_rank(l, numbers[0], size));
    if (!slowdown_is_whole(numbers[1], 1, (double)steps + 1))
        return slowdown_refuse(l, "names no step of this run, counted from 1");
    if (!(numbers[2] >= 0 && numbers[2] <= LONGEST))
        return slowdown_refuse(l, "has a time that is not between 0 and 1e6 s");
    if ((int)numbers[0] != rank) return TW_OK;
    if (h->pause_count == SLOWDOWN_PAUSES) return slowdown_refuse(l, "is one pause too many for its rank");
    h->pauses[h->pause_count].step = (uint64_t)numbers[1];
    h->pauses[h->pause_count++].seconds = numbers[2];
    return TW_OK;
}

tw_status slowdown_parse(const char *slow, const char *pause, int rank, int size, uint64_t steps, slowdown *h)
{
    *h = (slowdown){.factor = 1, .greatest = 1};
    for (list l = {"--slow", "RANK:FACTOR", slow, slow}; l.entry; l.entry = next_entry(l.entry))
        TW_TRY(take_slow(&l, rank, size, h));
    for (list l = {"--pause", "RANK:AT:SECONDS", pause, pause}; l.entry; l.entry = next_entry(l.entry))
        TW_TRY(take_pause(&l, rank, size, steps, h));
    return TW_OK;
}

double slowdown_extra(const slowdown *h, uint64_t step, double seconds)
{
    double extra = (h->factor - 1) * seconds;
    for (size_t i = 0; i < h->pause_count; i++)
        if (h->pauses[i].step == step) extra += h->pauses[i].seconds;
    return extra;
}

static void sleep_for(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * fmod(seconds, 1))};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

void slowdown_suffer(const slowdown *h, uint64_t step, double seconds)
{
    double extra = slowdown_extra(h, step, seconds);
    if (extra > 0) sleep_for(extra);
}
