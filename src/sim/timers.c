#include "timers.h"

#include "error.h"
#include "memory.h"

tw_status tw_timers_reserve(tw_timers *timers, size_t more)
{
    size_t needed = timers->reserved + more;
    if (needed >= timers->capacity) {
        size_t capacity = 2 * needed + 1;
        TW_TRY(tw_resize(&timers->heap, timers->capacity * sizeof *timers->heap, capacity * sizeof *timers->heap));
        timers->capacity = capacity;
    }
    timers->reserved = needed;
    return TW_OK;
}

void tw_timers_free(tw_timers *timers)
{
    tw_free(timers->heap);
}

static int is_earlier(const tw_timer *a, const tw_timer *b)
{
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

static void timers_put(tw_timers *timers, tw_timer *timer, size_t place)
{
    timers->heap[place] = timer;
    timer->place = place;
}

static void rise(tw_timers *timers, tw_timer *timer, size_t place)
{
    for (; place > 1 && is_earlier(timer, timers->heap[place / 2]); place /= 2)
        timers_put(timers, timers->heap[place / 2], place);
    timers_put(timers, timer, place);
}

static void sink(tw_timers *timers, tw_timer *timer, size_t place)
{
    for (size_t child; (child = 2 * place) <= timers->count; place = child) {
        if (child < timers->count && is_earlier(timers->heap[child + 1], timers->heap[child])) child++;
        if (!is_earlier(timers->heap[child], timer)) break;
        timers_put(timers, timers->heap[child], place);
    }
    timers_put(timers, timer, place);
}

void tw_timers_disarm(tw_timers *timers, tw_timer *timer)
{
    size_t place = timer->place;
    if (!place) return;
    tw_timer *last = timers->heap[timers->count--];
    timer->place = 0;
    if (last == timer) return;
    rise(timers, last, place);
    sink(timers, last, last->place);
}

void tw_timers_arm(tw_timers *timers, tw_timer *timer, double time)
{
    tw_timers_disarm(timers, timer);
    timer->time = time;
    timer->order = timers->armed++;
    rise(timers, timer, ++timers->count);
}

tw_timer *tw_timers_take(tw_timers *timers)
{
    if (!timers->count) return NULL;
    tw_timer *first = timers->heap[1];
    tw_timers_disarm(timers, first);
    return first;
}
