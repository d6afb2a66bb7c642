/* porter.h - whoever comes to a meeting point when the group is complete is told so, as long as the group is. */
#ifndef TW_COMM_TCP_PORTER_H
#define TW_COMM_TCP_PORTER_H

#include "reception.h"

typedef struct tcp_porter tcp_porter;

/* Takes a reception; its door tells nobody any more. NULL: no memory, or no file descriptor: the port is closed. */
tcp_porter *tcp_porter_create(tcp_reception *reception, int size);
/* From here on a thread is at the door. `is_whole` tells whether all ranks are there; it is called in that thread. */
void tcp_porter_begin(tcp_porter *porter, int (*is_whole)(void *context), void *context);
/* The port is closed soon; the thread is not waited for. NULL: nothing. */
void tcp_porter_stop(tcp_porter *porter);
void tcp_porter_destroy(tcp_porter *porter);

#endif
