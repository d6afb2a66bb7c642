/* liar.h - a comm whose rank says something else than it should in one of its messages, with the checksum that belongs
 * to it: what a worker can send that means harm. */
#ifndef TEST_TRAIN_LIAR_H
#define TEST_TRAIN_LIAR_H

#include "crew.h"

#include <limits.h>
#include <stdatomic.h>
#include <thinwire/thinwire_plugin.h>

/* Seconds that two wait for each other where one was led astray. */
#define LIAR_TIMEOUT 0.25

enum { LIE_NEVER = INT_MAX };

/* Of rank 0. */
typedef struct lie {
    int at, fill;   /* which message, from 1 on, and what every byte of it is; LIE_NEVER: they are counted */
    size_t size;    /* of the messages that count; 0: all of them */
    double timeout; /* seconds that two wait for each other where one was led astray */
    atomic_int messages;
} lie;

typedef struct liar {
    tw_transport_ops ops; /* of the true comm */
    void *self;
    tw_comm *comm;
    lie *lie; /* NULL: it tells the truth */
    unsigned char *said;
} liar;

static inline int liar_lies_now(const liar *me, size_t size)
{
    lie *own = me->lie;
    return own && size && (!own->size || own->size == size) && atomic_fetch_add(&own->messages, 1) + 1 == own->at;
}

static inline tw_status liar_start_send(void *self, int peer, unsigned channel, const void *src, size_t size,
                                        uint32_t check, void **request)
{
    liar *me = self;
    if (!liar_lies_now(me, size)) return me->ops.start_send(me->self, peer, channel, src, size, check, request);
    me->said = malloc(size);
    if (!me->said) return tw_fail(TW_ERROR_MEMORY, "no memory to lie");
    memset(me->said, me->lie->fill, size);
    return me->ops.start_send(me->self, peer, channel, me->said, size, tw_crc32c(0, me->said, size), request);
}

static inline tw_status liar_start_recv(void *self, int peer, unsigned channel, void *dst, size_t capacity,
                                        void **request)
{
    liar *me = self;
    return me->ops.start_recv(me->self, peer, channel, dst, capacity, request);
}

static inline tw_status liar_wait(void *self, void *request, double timeout, size_t *size, uint32_t *check)
{
    liar *me = self;
    return me->ops.wait(me->self, request, timeout, size, check);
}

static inline int liar_poll(void *self, void *request, double timeout)
{
    liar *me = self;
    return me->ops.poll(me->self, request, timeout);
}

static inline void liar_leave(void *self)
{
    liar *me = self;
    me->ops.leave(me->self);
}

static inline void liar_destroy(void *self)
{
    liar *me = self;
    tw_comm_destroy(me->comm);
    free(me->said);
    free(me);
}

/* In the place of self->comm. */
static inline tw_status liar_take_place(crew_member *self, lie *told)
{
    static const tw_transport_ops ops = {.struct_size = sizeof ops,
                                         .version = TW_TRANSPORT_VERSION,
                                         .name = "liar",
                                         .start_send = liar_start_send,
                                         .start_recv = liar_start_recv,
                                         .wait = liar_wait,
                                         .poll = liar_poll,
                                         .leave = liar_leave,
                                         .destroy = liar_destroy};
    liar *me = calloc(1, sizeof *me);
    if (!me) return tw_fail(TW_ERROR_MEMORY, "no memory for a liar");
    *me = (liar){.ops.struct_size = sizeof me->ops, .comm = self->comm, .lie = self->rank == 0 ? told : NULL};
    self->comm = NULL;
    TW_TRY(tw_comm_lend(me->comm, &me->ops, &me->self));
    TW_TRY(tw_comm_create_custom(&ops, me, self->rank, tw_comm_size(me->comm), &self->comm));
    return tw_comm_set_timeout(self->comm, told->at == LIE_NEVER ? 60 : told->timeout);
}

#endif
