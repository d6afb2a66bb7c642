/* latecomers.h - whoever comes to a meeting point when the group is complete is told so, as long as the group is. */
#ifndef TW_COMM_TCP_LATECOMERS_H
#define TW_COMM_TCP_LATECOMERS_H

#include "lobby.h"

typedef struct tcp_latecomers tcp_latecomers;

/* Takes a lobby; its acceptor tells nobody any more. NULL: no memory, or no file descriptor: the port is closed. */
tcp_latecomers *tcp_latecomers_create(tcp_lobby *lobby, int size);
/* From here on a thread serves the acceptor, and asks `is_whole` whether all ranks are there. */
void tcp_latecomers_begin(tcp_latecomers *latecomers, int (*is_whole)(void *context), void *context);
/* The port is closed soon; the thread is not waited for. NULL: nothing. */
void tcp_latecomers_stop(tcp_latecomers *latecomers);
void tcp_latecomers_destroy(tcp_latecomers *latecomers);

#endif
