#include "rendezvous_message.h"

#include "bytes.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST_TEXT = 16384 * TCP_ADDRESS };

/* Without a key anybody writes messages, and their texts come to a terminal. Addresses are told apart by line ends. */
static void make_printable(char *text, char allowed)
{
    for (; *text; text++)
        if (((unsigned char)*text < ' ' || *text == 127) && *text != allowed) *text = '?';
}

void tcp_request_write(const tcp_wish *wish, const unsigned char key[TCP_SECRET], unsigned char bytes[TCP_REQUEST])
{
    memset(bytes, 0, TCP_REQUEST);
    tw_put(bytes, (uint64_t)wish->size, 4);
    tw_put(bytes + 4, (uint64_t)wish->rank + 1, 4);
    tw_put(bytes + 8, (uint64_t)wish->sealed, 4);
    memcpy(bytes + 12, wish->address, strlen(wish->address));
    tcp_sign(key, 0, bytes, TCP_REQUEST - TCP_PROOF, bytes + TCP_REQUEST - TCP_PROOF);
}

int tcp_request_read(const unsigned char bytes[TCP_REQUEST], const unsigned char key[TCP_SECRET], tcp_wish *wish)
{
    if (!tcp_is_signed(key, 0, bytes, TCP_REQUEST - TCP_PROOF, bytes + TCP_REQUEST - TCP_PROOF)) return 0;
    wish->size = (int)(tw_get(bytes, 4) & INT32_MAX);
    wish->rank = (int)(tw_get(bytes + 4, 4) & INT32_MAX) - 1;
    wish->sealed = tw_get(bytes + 8, 4) != 0;
    memcpy(wish->address, bytes + 12, TCP_ADDRESS);
    if (wish->address[TCP_ADDRESS - 1] != 0) return 0;
    make_printable(wish->address, 0);
    return 1;
}

unsigned char *tcp_reply_write(tcp_reply_kind kind, int rank, const char *text, const unsigned char key[TCP_SECRET],
                               size_t *size)
{
    size_t length = strlen(text), signed_bytes = TCP_REPLY_HEAD + length;
    unsigned char *reply = malloc(signed_bytes + TCP_PROOF);
    if (!reply) return NULL;
    tw_put(reply, kind, 4);
    tw_put(reply + 4, (uint64_t)rank, 4);
    tw_put(reply + 8, length, 4);
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): its length goes before it */
    memcpy(reply + TCP_REPLY_HEAD, text, length);
    tcp_sign(key, 0, reply, signed_bytes, reply + signed_bytes);
    *size = signed_bytes + TCP_PROOF;
    return reply;
}

size_t tcp_reply_rest(const unsigned char head[TCP_REPLY_HEAD])
{
    uint64_t length = tw_get(head + 8, 4);
    return length <= LONGEST_TEXT ? (size_t)length + TCP_PROOF : 0;
}

int tcp_reply_read(unsigned char *reply, size_t size, const unsigned char key[TCP_SECRET], tcp_reply_kind *kind,
                   int *rank, char **text)
{
    size_t signed_bytes = size - TCP_PROOF;
    if (!tcp_is_signed(key, 0, reply, signed_bytes, reply + signed_bytes)) return 0;
    uint64_t number = tw_get(reply, 4);
    reply[signed_bytes] = 0;
    *kind = (tcp_reply_kind)number;
    *rank = (int)(tw_get(reply + 4, 4) & INT32_MAX);
    *text = (char *)reply + TCP_REPLY_HEAD;
    make_printable(*text, '\n');
    return number >= TCP_REFUSED && number < TCP_REPLY_KINDS;
}
