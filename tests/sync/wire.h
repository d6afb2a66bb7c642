/* wire.h - something between a comm and its transport: it is told before anything is asked of the transport, and
 * changes one of the messages that the rank receives. */
#ifndef TEST_WIRE_H
#define TEST_WIRE_H

#include <stdlib.h>

#include "channel.h"

typedef struct wire wire;
struct wire {
    tw_transport_ops ops; /* of the transport below */
    void *self;
    void (*before)(wire *through, int sends); /* (optional) a message is to be sent; or something else */
    long fatal;                               /* the message to change, of those received, counted from 1; 0: none */
    size_t counted;                           /* bytes of those that count; 0: all do */
    void (*change)(wire *through, unsigned char *message, size_t *size, uint32_t *check);
    const void *context;
    _Atomic long received;
    int sender; /* of the changed one; -1: not yet */
    uint64_t seed;
    int in_word; /* what change left here */
};

typedef struct tracked {
    void *request;
    unsigned char *dst; /* NULL: a send */
    int peer;
} tracked;

static inline tw_status track(tw_status status, tracked what, void **request)
{
    if (status != TW_OK) return status;
    tracked *kept = malloc(sizeof *kept);
    *kept = what;
    *request = kept;
    return TW_OK;
}

static inline wire *wire_of(void *self, int sends)
{
    wire *through = self;
    if (through->before) through->before(through, sends);
    return through;
}

static inline tw_status send_through(void *self, int peer, unsigned channel, const void *src, size_t size,
                                     uint32_t check, void **request)
{
    const wire *through = wire_of(self, 1);
    tracked what = {0};
    return track(through->ops.start_send(through->self, peer, channel, src, size, check, &what.request), what, request);
}

static unsigned char nothing;

static inline tw_status receive_through(void *self, int peer, unsigned channel, void *dst, size_t capacity,
                                        void **request)
{
    const wire *through = wire_of(self, 0);
    tracked what = {.dst = dst ? dst : &nothing, .peer = peer};
    return track(through->ops.start_recv(through->self, peer, channel, dst, capacity, &what.request), what, request);
}

static inline tw_status wait_through(void *self, void *request, double timeout, size_t *size, uint32_t *check)
{
    wire *through = wire_of(self, 0);
    tracked what = *(tracked *)request;
    free(request);
    tw_status status = through->ops.wait(through->self, what.request, timeout, size, check);
    int counts = status == TW_OK && what.dst && (!through->counted || *size == through->counted);
    if (counts && ++through->received == through->fatal) {
        through->sender = what.peer;
        through->change(through, what.dst, size, check);
    }
    return status;
}

static inline int poll_through(void *self, void *request, double timeout)
{
    const wire *through = wire_of(self, 0);
    return through->ops.poll(through->self, ((tracked *)request)->request, timeout);
}

static inline void leave_through(void *self)
{
    const wire *through = self;
    through->ops.leave(through->self);
}

static inline void destroy_through(void *self)
{
    const wire *through = self;
    through->ops.destroy(through->self);
}

static inline void put_between(wire *through, tw_comm *comm)
{
    through->ops = comm->ops;
    through->self = comm->self;
    through->sender = -1;
    comm->self = through;
    comm->ops.start_send = send_through;
    comm->ops.start_recv = receive_through;
    comm->ops.wait = wait_through;
    comm->ops.poll = poll_through;
    comm->ops.leave = leave_through;
    comm->ops.destroy = destroy_through;
}

/* Where the comm outlives the wire. */
static inline void take_away(const wire *through, tw_comm *comm)
{
    comm->ops = through->ops;
    comm->self = through->self;
}

#endif
