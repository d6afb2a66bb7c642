/* rendezvous_message.h - what is said at a meeting point, signed with the keys of the connection's proof. */
#ifndef TW_COMM_TCP_RENDEZVOUS_MESSAGE_H
#define TW_COMM_TCP_RENDEZVOUS_MESSAGE_H

#include "address.h"
#include "hello.h"

enum {
    TCP_REQUEST = 12 + TCP_ADDRESS + TCP_PROOF, /* size, rank wanted + 1, whether it seals, address */
    TCP_REPLY_HEAD = 12                         /* kind, rank, length; behind it that many bytes and a signature */
};

/* What a client wants. */
typedef struct tcp_wish {
    int size, rank; /* -1: any */
    int sealed;     /* 1: it seals what it will say to the other ranks */
    char address[TCP_ADDRESS];
} tcp_wish;

void tcp_request_write(const tcp_wish *wish, const unsigned char key[TCP_SECRET], unsigned char bytes[TCP_REQUEST]);
/* 0: nobody who proved itself wrote it. What it says may still be impossible. */
int tcp_request_read(const unsigned char bytes[TCP_REQUEST], const unsigned char key[TCP_SECRET], tcp_wish *wish);

/* LATER: not now, but perhaps after a while. */
typedef enum tcp_reply_kind { TCP_REFUSED = 1, TCP_GROUP, TCP_LATER, TCP_REPLY_KINDS } tcp_reply_kind;

/* The text is why, or the addresses, each with a line end. NULL: no memory. The caller frees it. */
unsigned char *tcp_reply_write(tcp_reply_kind kind, int rank, const char *text, const unsigned char key[TCP_SECRET],
                               size_t *size);
/* The bytes that come behind a head, its signature included; 0: it is none. */
size_t tcp_reply_rest(const unsigned char head[TCP_REPLY_HEAD]);
/* Of a whole one, `size` bytes with head. 0: it is not what the other wrote. *text is in it, and ends with a 0 in place
 * of the signature. */
int tcp_reply_read(unsigned char *reply, size_t size, const unsigned char key[TCP_SECRET], tcp_reply_kind *kind,
                   int *rank, char **text);

#endif
