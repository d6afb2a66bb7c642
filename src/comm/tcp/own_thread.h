/* own_thread.h - a thread of the transport's own. It is made as src/base/thread.c makes the library's, written again
 * here because a transport sees public headers only. */
#ifndef TW_COMM_TCP_OWN_THREAD_H
#define TW_COMM_TCP_OWN_THREAD_H

#include <pthread.h>

/* 0: the system has none left. The program's signal handlers stay on the program's own threads. */
int tcp_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

#endif
