#include "children.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned char *kept; /* [fd]: 1, if children have it not */
static size_t room;

static void children_hold(void)
{
    pthread_mutex_lock(&mutex);
}

static void children_let_go(void)
{
    pthread_mutex_unlock(&mutex);
}

/* In the child, which can do nothing with its parent's comms, and does not close them. */
static void close_copies(void)
{
    for (size_t fd = 0; fd < room; fd++)
        if (kept[fd]) close((int)fd);
    if (room) memset(kept, 0, room);
    children_let_go();
}

static void children_watch_forks(void)
{
    pthread_atfork(children_hold, children_let_go, close_copies);
}

static void children_make_room(size_t wanted)
{
    unsigned char *larger = wanted > room ? realloc(kept, 2 * wanted) : NULL;
    if (!larger) return;
    memset(larger + room, 0, 2 * wanted - room);
    kept = larger;
    room = 2 * wanted;
}

void tcp_keep_from_children(int fd)
{
    pthread_once(&once, children_watch_forks);
    children_hold();
    children_make_room((size_t)fd + 1);
    if ((size_t)fd < room) kept[fd] = 1;
    children_let_go();
}

void tcp_close(int fd)
{
    children_hold();
    if ((size_t)fd < room) kept[fd] = 0;
    close(fd);
    children_let_go();
}
