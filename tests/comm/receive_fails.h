/* receive_fails.h - what one rank hears instead of a message of another. */
#ifndef TEST_RECEIVE_FAILS_H
#define TEST_RECEIVE_FAILS_H

#include "support/assert.h"

#include "channel.h"

static void receive_fails(tw_comm *comm, int peer, const char *text)
{
    char word;
    tw_channel_start_receive(comm->channel, peer, &word, sizeof word, NULL);
    assert_fails(tw_channel_finish(comm->channel), TW_ERROR_PEER, text);
}

#endif
