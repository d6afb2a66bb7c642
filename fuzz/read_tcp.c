/* What a peer over sockets can send once it is let in, and what a stranger can: frames, hellos, messages of a
 * rendezvous and addresses of any bytes. The first byte says which, and whether the headers of frames get the checksum
 * that they should have. */
#include "fuzz.h"

#include "address.h"
#include "bytes.h"
#include "hello.h"
#include "peer.h"
#include "rendezvous_message.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHANNELS = 3, ROOM = 200 * 1000 };

static void create_peer(tcp_peer *peer, int fd)
{
    tcp_peer_create(peer, 1, 2);
    peer->stream = calloc(1, sizeof *peer->stream);
    peer->streams = peer->open_streams = 1;
    peer->stream[0] = (tcp_stream){.peer = peer, .fd = fd};
}

/* Some receives and sends, so that frames have something to meet. */
static void post_some(tcp_peer *peer, unsigned char *room, tcp_request requests[2 * CHANNELS])
{
    for (unsigned channel = 0; channel < CHANNELS; channel++) {
        tcp_request *receive = &requests[2 * channel], *send = receive + 1;
        *receive = (tcp_request){.peer = peer, .dst = room, .size = channel ? ROOM : 100};
        *send = (tcp_request){.peer = peer, .is_send = 1, .src = room, .size = channel ? ROOM : 100};
        tcp_flow *flow = NULL;
        must(tcp_flow_of(peer, channel, &flow) == TW_OK);
        must(tcp_inbox_post(flow, receive) == TW_OK);
        tcp_outbox_post(flow, send);
    }
    tcp_stream_push(peer);
}

/* Gives each header its checksum; what lies between them is what they say. */
static void mend(uint8_t *data, size_t size)
{
    for (size_t at = 0; size - at >= TCP_FRAME_BYTES;) {
        uint64_t length = tw_get(data + at + 40, 4);
        tw_put(data + at, tw_crc32c(0, data + at + 4, TCP_FRAME_BYTES - 4), 4);
        at += TCP_FRAME_BYTES;
        at += length < size - at ? (size_t)length : size - at;
    }
}

static void read_frames(const uint8_t *input, size_t size, int mends)
{
    static uint8_t data[64 * 1024];
    static unsigned char room[ROOM];
    int fds[2];
    tcp_request requests[2 * CHANNELS];
    tcp_peer peer;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) return;
    create_peer(&peer, fds[0]);
    post_some(&peer, room, requests);
    size_t sent = size < sizeof data ? size : sizeof data;
    memcpy(data, input, sent);
    if (mends) mend(data, sent);
    (void)!write(fds[1], data, sent);
    shutdown(fds[1], SHUT_WR);
    while (!peer.gone) {
        tcp_stream_pull(&peer.stream[0]);
        if (!peer.gone) tcp_stream_push(&peer);
    }
    for (int i = 0; i < 2 * CHANNELS; i++) must(requests[i].outcome != TCP_PENDING);
    close(fds[0]);
    close(fds[1]);
    tcp_peer_destroy(&peer);
}

static void read_hello(const uint8_t *data, size_t size)
{
    static const unsigned char secret[TCP_SECRET], challenge[TCP_CHALLENGE];
    tcp_place place;
    tcp_wish wish;
    if (size >= TCP_HELLO) must(tcp_hello_judge(secret, challenge, data, &place) != TCP_WELCOME);
    if (size >= TCP_REQUEST) must(!tcp_request_read(data, secret, &wish));
    if (size >= TCP_REPLY_HEAD) (void)tcp_reply_rest(data);
}

static void read_text(const uint8_t *data, size_t size)
{
    tcp_address address;
    char again[TCP_ADDRESS], *text = malloc(size + 1);
    if (size) memcpy(text, data, size);
    text[size] = 0;
    (void)tcp_meeting_read(text, &address);
    if (tcp_address_read(text, "it", &address) == TW_OK) {
        tcp_address_write(&address, again);
        must(tcp_address_read(again, "it", &address) == TW_OK);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    if (data[0] % 3 == 0) read_frames(data + 1, size - 1, data[0] / 3 % 2);
    if (data[0] % 3 == 1) read_hello(data + 1, size - 1);
    if (data[0] % 3 == 2) read_text(data + 1, size - 1);
    return 0;
}
