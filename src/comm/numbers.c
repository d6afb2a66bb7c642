#include "numbers.h"

#include "channel.h"
#include "error.h"
#include "memory.h"

enum { MOST = 1 << 30, AGREEING = 1 /* the number behind the program's own, under which ranks agree on others */ };

/* What a rank would take, and what all together would: these are sums, the least and the most of all of them. */
typedef struct proposal {
    uint32_t least, most; /* first numbers that are free */
    uint32_t few, many;   /* how many are wanted: not the same where a program makes different objects */
    int64_t open;         /* messages that are on their way under the numbers from `least` on */
} proposal;
_Static_assert(sizeof(proposal) == 24, "the message has no holes");

/* ---- a rank's own list; with the comm's mutex -------------------------------------------------------------------- */

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

static void spoil(const tw_comm *comm, unsigned first, unsigned count)
{
    for (tw_numbers *one = comm->numbers; one; one = one->next)
        if (overlaps(one, first, count)) one->spoiled = 1;
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

/* ---- what all agree on ------------------------------------------------------------------------------------------- */

static tw_status numbers_check(const proposal *heard, int sender)
{
    if (heard->least <= heard->most && heard->most <= MOST && heard->few && heard->few <= heard->many &&
        heard->many <= MOST)
        return TW_OK;
    return tw_fail(TW_ERROR_PACKET,
                   "rank %d says what cannot be: that it wants %u to %u numbers of channels at %u to %u", sender,
                   heard->few, heard->many, heard->least, heard->most);
}

static void numbers_add(proposal *all, const proposal *heard)
{
    if (heard->least < all->least) all->least = heard->least;
    if (heard->most > all->most) all->most = heard->most;
    if (heard->few < all->few) all->few = heard->few;
    if (heard->many > all->many) all->many = heard->many;
    all->open += heard->open;
}

/* Up a binomial tree to rank 0, and down again. */
static tw_status combine(tw_channel *channel, proposal *all)
{
    int ranks = channel->comm->size, self = channel->comm->rank, bit = 1;
    for (; bit < ranks && !(self & bit); bit *= 2) {
        proposal heard;
        if (self + bit >= ranks) continue;
        tw_channel_start_receive(channel, self + bit, &heard, sizeof heard, NULL);
        TW_TRY(tw_channel_finish(channel));
        TW_TRY(numbers_check(&heard, tw_comm_name(channel->comm, self + bit)));
        numbers_add(all, &heard);
    }
    if (self) tw_channel_start_send(channel, self - bit, all, sizeof *all);
    TW_TRY(tw_channel_finish(channel));
    TW_TRY(tw_channel_broadcast_into(channel, 0, all, sizeof *all));
    return numbers_check(all, tw_comm_name(channel->comm, 0));
}

/* What comes out is the same on all ranks, and so is what follows from it. All get at last to numbers that none has
 * had. */
static tw_status numbers_agree(tw_channel *channel, tw_numbers *made)
{
    tw_comm *comm = channel->comm;
    for (unsigned from = 0;;) {
        tw_mutex_lock(&comm->mutex);
        unsigned first = find_room(comm, from, made->count);
        proposal all = {first, first, made->count, made->count, count_open(comm, first, made->count)};
        tw_mutex_unlock(&comm->mutex);
        if (first > MOST - made->count)
            return tw_fail(TW_ERROR_UNSUPPORTED, "this comm has no %u numbers left for channels", made->count);
        TW_TRY(combine(channel, &all));
        int is_same = all.least == all.most && all.few == all.many;
        made->first = from = all.most;
        made->count = all.many;
        if (is_same && all.open == 0) return TW_OK;
        tw_mutex_lock(&comm->mutex);
        if (is_same) spoil(comm, from, made->count);
        tw_mutex_unlock(&comm->mutex);
    }
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static tw_status numbers_create(unsigned count, tw_numbers **created)
{
    tw_numbers *made;
    TW_TRY(tw_allocate(1, sizeof *made, &made));
    made->count = count;
    made->in_use = 1;
    *created = made;
    return TW_OK;
}

tw_status tw_numbers_take(tw_channel *channel, unsigned count, tw_numbers **numbers)
{
    tw_comm *comm = channel->comm;
    tw_numbers *made;
    TW_TRY(numbers_create(count, &made));
    tw_mutex_lock(&comm->mutex);
    made->first = comm->numbers_end;
    numbers_enter(comm, made);
    tw_mutex_unlock(&comm->mutex);
    *numbers = made;
    return TW_OK;
}

tw_status tw_numbers_agree(tw_channel *channel, unsigned count, tw_numbers **numbers)
{
    tw_comm *comm = channel->comm;
    tw_numbers *made;
    if (comm->separated)
        return tw_fail(TW_ERROR_ORDER, "some ranks of this comm have a comm of their own: nothing else is made on it");
    TW_TRY(numbers_create(count, &made));
    channel->number = AGREEING;
    tw_status status = numbers_agree(channel, made);
    if (status != TW_OK) {
        tw_free(made);
        return status;
    }
    tw_mutex_lock(&comm->mutex);
    numbers_enter(comm, made);
    tw_mutex_unlock(&comm->mutex);
    *numbers = made;
    return TW_OK;
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
