/* lookup.h - the addresses of a host, for those that must not wait: a name server may take its time, or not answer, and
 * then a thread of the lookup's own waits for it. */
#ifndef TW_COMM_TCP_LOOKUP_H
#define TW_COMM_TCP_LOOKUP_H

#include "address.h"

typedef struct tcp_lookup tcp_lookup;

/* What is an address already is found at once. NULL: no memory, or no thread is left. */
tcp_lookup *tcp_lookup_begin(const char *host, int port);
int tcp_lookup_is_over(const tcp_lookup *lookup);
/* Of one that is over, which is then no more. NULL: there is no such host, or nobody says. freeaddrinfo frees it. */
struct addrinfo *tcp_lookup_end(tcp_lookup *lookup);
/* Nobody wants to know any more. Its thread is not waited for. */
void tcp_lookup_drop(tcp_lookup *lookup);

#endif
