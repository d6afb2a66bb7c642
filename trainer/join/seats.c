#include "seats.h"
#include "error.h"
#include <stdlib.h>
#include <string.h>

/* Its messages are the whole comm's. */
typedef struct seats {
    tw_transport_ops ops; /* lent */
    void *self;
    int ranks[];
} seats;

static tw_status seats_send(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                            void **request)
{
    const seats *s = self;
    return s->ops.start_send(s->self, s->ranks[peer], channel, src, size, check, request);
}

static tw_status seats_receive(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **request)
{
    const seats *s = self;
    return s->ops.start_recv(s->self, s->ranks[peer], channel, dst, capacity, request);
}

static tw_status seats_wait(void *self, void *request, double timeout, size_t *size, uint32_t *check)
{
    const seats *s = self;
    return s->ops.wait(s->self, request, timeout, size, check);
}

static int seats_poll(void *self, void *request, double timeout)
{
    const seats *s = self;
    return s->ops.poll(s->self, request, timeout);
}

static uint64_t seats_signs(void *self, int peer, int ask)
{
    const seats *s = self;
    return s->ops.signs(s->self, s->ranks[peer], ask);
}

tw_status seats_open(tw_comm *whole, const int *ranks, int count, tw_comm **comm)
{
    int own = 0;
    seats *s = calloc(1, sizeof *s + (size_t)count * sizeof *ranks);
    if (!s) return tw_fail(TW_ERROR_MEMORY, "no memory for a comm of %d ranks", count);
    s->ops.struct_size = sizeof s->ops;
    tw_status status = tw_comm_lend(whole, &s->ops, &s->self);
    if (status != TW_OK) {
        free(s);
        return status;
    }
    memcpy(s->ranks, ranks, (size_t)count * sizeof *ranks);
    while (ranks[own] != tw_comm_rank(whole)) own++;
    const tw_transport_ops ops = {.struct_size = sizeof ops,
                                  .version = TW_TRANSPORT_VERSION,
                                  .name = s->ops.name,
                                  .start_send = seats_send,
                                  .start_recv = seats_receive,
                                  .wait = seats_wait,
                                  .poll = seats_poll,
                                  .destroy = free,
                                  .signs = s->ops.signs ? seats_signs : NULL};
    TW_TRY(tw_comm_create_custom(&ops, s, own, count, comm));
    TW_TRY(tw_comm_set_timeout(*comm, tw_comm_timeout(whole)));
    return tw_comm_set_patience(*comm, tw_comm_patience(whole));
}
