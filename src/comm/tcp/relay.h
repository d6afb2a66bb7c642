/* relay.h - what a rank carries between two others of which neither can be called: each calls this one, and from then
 * on what comes from the one goes to the other.
 *
 * It reads no more from one end than it has room for and the other end takes, so that each link has a fixed amount of
 * memory, whatever its ends do, and nothing that comes makes more of it go. It knows nothing of what it carries. */
#ifndef TW_COMM_TCP_RELAY_H
#define TW_COMM_TCP_RELAY_H

#include "hello.h"

typedef struct tcp_relay tcp_relay;

/* Of so many links, which tcp_relay_expect names. NULL: no memory. */
tcp_relay *tcp_relay_create(size_t links);
/* Of a link, its ranks, the lower first. */
void tcp_relay_expect(tcp_relay *relay, uint32_t low, uint32_t high, uint32_t stream);

/* Where the connection of a link's end belongs, which is place.from; -1: it has not come. NULL: no such link is
 * expected. What stands there is the relay's. */
int *tcp_relay_end(tcp_relay *relay, tcp_place place);

/* Whether a connection of this rank has not come to be carried. NULL: 0. */
int tcp_relay_lacks(const tcp_relay *relay, uint32_t rank);

/* All ends are there: begins to carry, in a thread of its own. 0: the system has none left. NULL does nothing, well. */
int tcp_relay_begin(tcp_relay *relay);
/* Waits so many seconds for the ends to part from each other. Returns the bytes that were carried. NULL: 0. */
uint64_t tcp_relay_destroy(tcp_relay *relay, double seconds);

#endif
