/* Channels under numbers that others have had before: on which of them all ranks agree first. */
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
        int64_t open;
        unsigned first = tw_numbers_room(comm, from, made->count, &open);
        proposal all = {first, first, made->count, made->count, open};
        if (first > MOST - made->count)
            return tw_fail(TW_ERROR_UNSUPPORTED, "this comm has no %u numbers left for channels", made->count);
        TW_TRY(combine(channel, &all));
        int is_same = all.least == all.most && all.few == all.many;
        made->first = from = all.most;
        made->count = all.many;
        if (is_same && all.open == 0) return TW_OK;
        if (is_same) tw_numbers_spoil(comm, from, made->count);
    }
}

/* With numbers that it has agreed on under the comm's second one. */
static tw_status renumber(tw_channel *channel, unsigned count)
{
    tw_numbers *numbers;
    TW_TRY(tw_numbers_create(count, &numbers));
    tw_status status = numbers_agree(channel, numbers);
    if (status != TW_OK) {
        tw_free(numbers);
        return status;
    }
    tw_numbers_enter(channel->comm, numbers);
    tw_channel_give(channel, numbers);
    return TW_OK;
}

tw_status tw_channel_create_again(tw_comm *comm, unsigned more, tw_channel **channel)
{
    tw_channel *made = NULL;
    if (comm->separated)
        return tw_fail(TW_ERROR_ORDER, "some ranks of this comm have a comm of their own: nothing else is made on it");
    tw_status status = tw_channel_create_behind(comm->channel, AGREEING, &made);
    if (status == TW_OK) status = renumber(made, 1 + more);
    if (status == TW_OK) {
        *channel = made;
        return TW_OK;
    }
    status = tw_channel_give_up(comm->channel, status); /* the others wait to hear of it */
    tw_channel_destroy(made);
    return status;
}
