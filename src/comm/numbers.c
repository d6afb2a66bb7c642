#include "numbers.h"

#include "error.h"
#include "memory.h"

static int overlaps(const tw_numbers *one, unsigned first, unsigned count)
{
    return one->first < first + count && first < one->first + one->count;
}

/* The first number from `from` on with `count` in a row that may be used, as far as this rank knows. */
static unsigned find_room(const tw_comm *comm, unsigned from, unsigned count)
{
    for (const tw_numbers *one = comm->numbers; one; one = one->next)
        if ((one->in_use || one->spoiled) && overlaps(one, from, count)) from = one->first + one->count;
    return from;
}

static int64_t count_open(const tw_comm *comm, unsigned first, unsigned count)
{
    int64_t open = 0;
    for (const tw_numbers *one = comm->numbers; one; one = one->next)
        if (overlaps(one, first, count)) open += one->open;
    return open;
}

/* Takes the place of those that were in use before, which have no message on its way. */
static void numbers_enter(tw_comm *comm, tw_numbers *made)
{
    tw_numbers **link = &comm->numbers;
    while (*link && (*link)->first < made->first + made->count) {
        tw_numbers *one = *link;
        if (!overlaps(one, made->first, made->count)) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        tw_free(one);
    }
    made->next = *link;
    *link = made;
    if (made->first + made->count > comm->numbers_end) comm->numbers_end = made->first + made->count;
}

tw_status tw_numbers_create(unsigned count, tw_numbers **numbers)
{
    TW_TRY(tw_allocate(1, sizeof **numbers, numbers));
    (*numbers)->count = count;
    (*numbers)->in_use = 1;
    return TW_OK;
}

void tw_numbers_enter(tw_comm *comm, tw_numbers *made)
{
    tw_mutex_lock(&comm->mutex);
    numbers_enter(comm, made);
    tw_mutex_unlock(&comm->mutex);
}

tw_status tw_numbers_take(tw_comm *comm, unsigned count, tw_numbers **numbers)
{
    TW_TRY(tw_numbers_create(count, numbers));
    tw_mutex_lock(&comm->mutex);
    (*numbers)->first = comm->numbers_end;
    numbers_enter(comm, *numbers);
    tw_mutex_unlock(&comm->mutex);
    return TW_OK;
}

unsigned tw_numbers_room(tw_comm *comm, unsigned from, unsigned count, int64_t *open)
{
    tw_mutex_lock(&comm->mutex);
    unsigned first = find_room(comm, from, count);
    *open = count_open(comm, first, count);
    tw_mutex_unlock(&comm->mutex);
    return first;
}

void tw_numbers_spoil(tw_comm *comm, unsigned first, unsigned count)
{
    tw_mutex_lock(&comm->mutex);
    for (tw_numbers *one = comm->numbers; one; one = one->next)
        if (overlaps(one, first, count)) one->spoiled = 1;
    tw_mutex_unlock(&comm->mutex);
}

void tw_numbers_give(tw_comm *comm, tw_numbers *numbers)
{
    if (!numbers) return;
    tw_mutex_lock(&comm->mutex);
    numbers->in_use = 0;
    tw_mutex_unlock(&comm->mutex);
}

void tw_numbers_free(tw_comm *comm)
{
    while (comm->numbers) {
        tw_numbers *one = comm->numbers;
        comm->numbers = one->next;
        tw_free(one);
    }
}

tw_numbers *tw_numbers_with(tw_comm *comm, unsigned number)
{
    tw_mutex_lock(&comm->mutex);
    tw_numbers *one = comm->numbers;
    while (one && !overlaps(one, number, 1)) one = one->next;
    tw_mutex_unlock(&comm->mutex);
    return one;
}

unsigned tw_numbers_end(tw_comm *comm)
{
    tw_mutex_lock(&comm->mutex);
    unsigned end = comm->numbers_end;
    tw_mutex_unlock(&comm->mutex);
    return end;
}
