/* held.h - who may call on a comm, and who keeps it. */
#ifndef TW_COMM_HELD_H
#define TW_COMM_HELD_H

#include "comm.h"

/* TW_ERROR_ARGUMENT for NULL, TW_ERROR_ORDER in a forked child: what every call on a comm begins with, and what every
 * call on an object that was made on one asks of it. */
tw_status tw_comm_need(const tw_comm *comm);

/* For what uses a comm until it says that it no longer does. */
void tw_comm_hold(tw_comm *comm);
void tw_comm_release(tw_comm *comm);

/* The transport's leave, where it has one; because of a peer, or -1: of none. */
void tw_comm_withdraw(const tw_comm *comm, int because_of);

#endif
