/* numbers.h - the numbers that tell a comm's channels apart, and when they may be used again.
 *
 * Each user of a comm takes a range of numbers and gives it back at its end, which every rank reaches when it likes. A
 * number may be used again when all ranks have given it back and no message is on its way under it: one that nobody
 * received would be taken for the next user's. So a range counts its messages, and before it is used again the ranks
 * add up what each of them began to send and what it received. No pair of ranks has received more than was sent, so
 * where the sums are equal every pair is even. Where they are not, and where a message was taken back or failed, the
 * range is never used again. */
#ifndef TW_COMM_NUMBERS_H
#define TW_COMM_NUMBERS_H

#include "object.h"

typedef struct tw_numbers {
    struct tw_numbers *next; /* in its comm, the next higher */
    unsigned first, count;
    int in_use;
    _Atomic int spoiled;  /* a message under one of them was taken back or failed */
    _Atomic int64_t open; /* messages that this rank began to send, less those it received */
} tw_numbers;

/* `count` numbers that nobody has had, without a word to the others. Every rank calls it in the same order. */
tw_status tw_numbers_take(tw_comm *comm, unsigned count, tw_numbers **numbers);

/* The same of those that all agree on (again.c). First without a place; then on the comm's list, with its final one. */
tw_status tw_numbers_create(unsigned count, tw_numbers **numbers);
void tw_numbers_enter(tw_comm *comm, tw_numbers *made);
/* The first number from `from` on with `count` in a row that may be used, as far as this rank knows; and the messages
 * that are on their way under them. */
unsigned tw_numbers_room(tw_comm *comm, unsigned from, unsigned count, int64_t *open);
/* They are not used again. */
void tw_numbers_spoil(tw_comm *comm, unsigned first, unsigned count);

/* NULL is allowed. */
void tw_numbers_give(tw_comm *comm, tw_numbers *numbers);
void tw_numbers_free(tw_comm *comm);

/* The range that has a number; NULL: it is in none. */
tw_numbers *tw_numbers_with(tw_comm *comm, unsigned number);
/* No number from here on was ever in use. The same on all ranks. */
unsigned tw_numbers_end(tw_comm *comm);

/* To be told of each message under one of them (NULL: nothing is noted): that it has been started, and how its wait
 * ended. */
static inline void tw_numbers_started(tw_numbers *numbers, int outgoing)
{
    if (numbers && outgoing) numbers->open++;
}

static inline void tw_numbers_ended(tw_numbers *numbers, int outgoing, tw_status status)
{
    if (!numbers) return;
    if (status != TW_OK)
        numbers->spoiled = 1;
    else if (!outgoing)
        numbers->open--;
}

#endif
