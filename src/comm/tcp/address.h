/* address.h - "HOST:PORT#TOKEN/STREAMS" and what it takes to get there. Behind it stands "/behind" where nobody gets
 * there, and whoever has it calls the others. */
#ifndef TW_COMM_TCP_ADDRESS_H
#define TW_COMM_TCP_ADDRESS_H

#include <netdb.h>
#include <sys/socket.h>
#include <thinwire/thinwire_plugin.h>

enum { TCP_HOST = 256, TCP_TOKEN = 32 /* digits */, TCP_ADDRESS = TCP_HOST + TCP_TOKEN + 32, TCP_NAME = 80 };

typedef struct tcp_address {
    char host[TCP_HOST];
    int port;
    char token[TCP_TOKEN + 1]; /* "": there is none */
    int streams;
    int behind; /* a router: it cannot be called */
} tcp_address;

/* What a listener tells others. TW_ERROR_ARGUMENT names `what`, which the text is. */
tw_status tcp_address_read(const char *text, const char *what, tcp_address *address);
void tcp_address_write(const tcp_address *address, char text[TCP_ADDRESS]);
/* The same without token: "HOST:PORT", a meeting point. */
tw_status tcp_meeting_read(const char *text, tcp_address *address);
void tcp_meeting_write(const tcp_address *address, char text[TCP_ADDRESS]);

/* getaddrinfo, with a status and its flags. `host` may be NULL: all addresses of this machine. freeaddrinfo frees the
 * list. */
tw_status tcp_resolve(const char *host, int port, int flags, struct addrinfo **list);

/* "10.0.0.5", of a socket's address. */
void tcp_host_name(const struct sockaddr *address, char name[TCP_NAME]);
int tcp_port_of(const struct sockaddr *address);

/* An address of an interface, NULL: of any but the loopback; 0: it has none. */
int tcp_interface_address(const char *interface, char host[TCP_HOST]);
/* The address of this machine that others are most likely to reach: that of the way out, else of any interface that
 * is up, else the loopback's. */
void tcp_own_address(char host[TCP_HOST]);

/* Whether this machine has an address that is a number. A name is taken for its own. */
int tcp_is_own_address(const char *host);

/* The address that this machine has on its way to another; 0: there is no way. A name is not looked up: its way is the
 * way out. */
int tcp_way_to(const struct sockaddr *there, char host[TCP_HOST]);
int tcp_way_to_host(const char *there, char host[TCP_HOST]);

#endif
