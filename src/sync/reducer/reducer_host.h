/* reducer_host.h - option per_host=G: G ranks in a row are a host, and to the scheme a host is one rank. Before a
 * message is begun, its gradients are averaged inside the host, exactly, in order of rank. The host's first rank, which
 * alone has a scheme that works, exchanges that mean with the other hosts', and hands the result to the members. So a
 * host's line carries what one rank's would, however many members it has, and the scheme needs to know nothing of it.
 *
 * A member's own schemes stand idle. They are there for what only a scheme can tell, its plan and its momentum; what
 * they would remember is never touched, and so takes no memory that counts. What became of a message on the first rank
 * is written into them. */
#ifndef TW_REDUCER_HOST_H
#define TW_REDUCER_HOST_H

#include "reducer.h"

/* Numbers behind a reducer's own channel and its lanes: the members' comm and the comm of the first ranks have the two
 * of any comm each, and one for each lane. */
enum { TW_HOST_COMM_NUMBERS = 2 + TW_MOST_LANES, TW_HOST_NUMBERS = 2 * TW_HOST_COMM_NUMBERS };

/* 1 where schemes work: on the first rank of a host, which every rank is unless hosts are asked for. */
int tw_reducer_is_first(const tw_reducer *reducer);

/* Hosts of per_host workers, for a reducer that has its channel. */
tw_status tw_reducer_host_create(tw_reducer *reducer, int per_host);
/* When the messages are there. */
tw_status tw_reducer_host_make_room(tw_reducer *reducer);
void tw_reducer_host_destroy(tw_reducer *reducer);

/* Before a message's rounds its gradients become the host's mean in reducer->exchanged, where the first rank also notes
 * their squares. After them what was made of that becomes every member's. */
tw_status tw_reducer_host_average(tw_reducer *reducer, size_t message, tw_channel *aside);
tw_status tw_reducer_host_spread(tw_reducer *reducer, size_t message, tw_channel *aside);

#endif
