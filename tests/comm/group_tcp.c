/* Ranks as threads of this process that see each other over sockets of the loopback. STREAMS connections to each. With
 * BEHIND all but the second cannot be called, and talk to each other through that one. */
enum { MOST = 9 };
#define SIZES 1, 2, 3, 5, MOST /* what follows from a size that lies between, threads and the world show */
#include "group_ranks.h"

#include <thinwire/thinwire_tcp.h>

#ifdef BEHIND
enum { CALLABLE = 1 };
#else
enum { CALLABLE = -1 };
#endif

static tw_tcp *listeners[MOST];
static const char *addresses[MOST];

static void group_open(int size)
{
    tw_tcp_options options = {.struct_size = sizeof options, .bind = "127.0.0.1", .streams = STREAMS};
    for (int r = 0; r < size; r++) {
        options.behind = CALLABLE >= 0 && size > 1 && r != CALLABLE;
        options.advertise = options.behind ? "192.0.2.1" : NULL;
        CHECK(tw_tcp_listen(&options, &listeners[r]) == TW_OK);
        addresses[r] = tw_tcp_address(listeners[r]);
    }
}

static tw_status group_join(int rank, int size, tw_comm **comm)
{
    tw_status status = tw_tcp_connect(listeners[rank], rank, size, addresses, 60, comm);
    group_meet(); /* nobody reads this rank's address any more */
    tw_tcp_destroy(listeners[rank]);
    return status;
}
