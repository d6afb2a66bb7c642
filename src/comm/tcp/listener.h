/* listener.h - what a tw_tcp is. */
#ifndef TW_COMM_TCP_LISTENER_H
#define TW_COMM_TCP_LISTENER_H

#include "address.h"
#include "latecomers.h"

#include <thinwire/thinwire_tcp.h>

struct tw_tcp {
    tw_tcp_options options; /* without texts and key, which are in the next two */
    unsigned char *key;
    tcp_address address;
    char text[TCP_ADDRESS];
    tcp_acceptor acceptor;
    int used;                   /* tw_tcp_connect has been called */
    int is_told_of;             /* the group that comes of it is, as tw_transport_ops says */
    tcp_latecomers *latecomers; /* for the group that comes of it; NULL: none */
};

/* What the caller gave, however old its struct is, and checked. */
tw_status tcp_options_read(const tw_tcp_options *given, tw_tcp_options *options);

/* A struct of a caller's that begins with its size, into one of `known` bytes, which is zeros. */
tw_status tcp_read_known(void *options, size_t known, const void *given, const char *type);

/* Whether it has this address, or the same but that it cannot be called, as others have found: then it has that. */
int tcp_listener_is_at(tw_tcp *tcp, const char *address);

/* 1: the caller wants no more. */
int tcp_is_stopped(const tw_tcp_options *options);

#endif
