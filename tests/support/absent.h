/* absent.h - a transport whose peers never come, and on which waiting takes no time: a nap is noted, and over. So a
 * test sees how long a peer is waited for without waiting. */
#ifndef TEST_ABSENT_H
#define TEST_ABSENT_H

#include <thinwire/thinwire_plugin.h>

typedef struct absent {
    double waited;  /* the naps together */
    double lives;   /* until then the peers answer when they are asked whether they are there */
    double arrives; /* from then on all requests are done */
    int fails;      /* all requests are over, and have failed */
    uint64_t signs;
    int busy;                             /* the program of this rank is, as its transport says; 0: none is */
    void (*meanwhile)(struct absent *me); /* called when it is asked whose program is busy */
    int is_told_of;                       /* see tw_transport_ops */
    int asked;                            /* whom last; 0: nobody was */
    double asked_at;                      /* after so much waiting for the first time */
} absent;

static tw_status absent_send(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                             void **request)
{
    (void)peer, (void)channel, (void)src, (void)size, (void)check;
    *request = self;
    return TW_OK;
}

static tw_status absent_receive(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **request)
{
    (void)peer, (void)channel, (void)dst, (void)capacity;
    *request = self;
    return TW_OK;
}

static int absent_poll(void *self, void *request, double timeout)
{
    absent *me = self;
    (void)request;
    me->waited += timeout;
    return me->fails || me->waited >= me->arrives;
}

static tw_status absent_wait(void *self, void *request, double timeout, size_t *size, uint32_t *check)
{
    const absent *me = self;
    (void)request, (void)timeout, (void)size, (void)check;
    return me->waited >= me->arrives ? TW_OK : tw_fail(TW_ERROR_PEER, "the transport's own words");
}

static uint64_t absent_signs(void *self, int peer, int ask)
{
    absent *me = self;
    if (ask && !me->asked) me->asked_at = me->waited;
    if (ask) me->asked = peer;
    me->signs += ask && me->waited < me->lives;
    return me->signs;
}

static int absent_is_busy(void *self, int peer, const char **where)
{
    absent *me = self;
    *where = "its machine";
    if (me->meanwhile) me->meanwhile(me);
    return peer == me->busy;
}

static void absent_destroy(void *self)
{
    (void)self;
}

/* A comm of rank 0 and `size` - 1 others; hears: the transport can tell whether they live. */
static tw_comm *absent_open(absent *self, int size, int hears)
{
    const tw_transport_ops ops = {.struct_size = sizeof ops,
                                  .version = TW_TRANSPORT_VERSION,
                                  .name = "absent",
                                  .start_send = absent_send,
                                  .start_recv = absent_receive,
                                  .wait = absent_wait,
                                  .poll = absent_poll,
                                  .destroy = absent_destroy,
                                  .signs = hears ? absent_signs : NULL,
                                  .is_busy = self->busy ? absent_is_busy : NULL,
                                  .is_told_of = self->is_told_of};
    tw_comm *comm = NULL;
    assert_int_equal(tw_comm_create_custom(&ops, self, 0, size, &comm), TW_OK);
    return comm;
}

#endif
