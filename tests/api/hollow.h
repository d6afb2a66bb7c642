/* hollow.h - a transport that carries nothing: every message fails with TW_ERROR_PEER. */
#ifndef TEST_API_HOLLOW_H
#define TEST_API_HOLLOW_H

#include <thinwire/thinwire_plugin.h>

static tw_status send_nothing(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                              void **request)
{
    (void)self, (void)peer, (void)channel, (void)src, (void)size, (void)check, (void)request;
    return TW_ERROR_PEER;
}

static tw_status receive_nothing(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **request)
{
    (void)self, (void)peer, (void)channel, (void)dst, (void)capacity, (void)request;
    return TW_ERROR_PEER;
}

static tw_status wait_for_nothing(void *self, void *request, double timeout, size_t *size, uint32_t *check)
{
    (void)self, (void)request, (void)timeout, (void)size, (void)check;
    return TW_ERROR_PEER;
}

static int poll_nothing(void *self, void *request, double timeout)
{
    (void)self, (void)request, (void)timeout;
    return 1;
}

#define HOLLOW(at_its_end)                                                                                             \
    {                                                                                                                  \
        .struct_size = sizeof(tw_transport_ops), .version = TW_TRANSPORT_VERSION, .name = "hollow",                    \
        .start_send = send_nothing, .start_recv = receive_nothing, .wait = wait_for_nothing, .poll = poll_nothing,     \
        .destroy = at_its_end                                                                                          \
    }

#endif
