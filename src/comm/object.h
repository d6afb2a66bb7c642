/* object.h - what a comm is made of. */
#ifndef TW_COMM_OBJECT_H
#define TW_COMM_OBJECT_H

#include "comm.h"
#include "process.h"
#include "thread.h"

enum { TW_MAX_RANKS = 16384, TW_REASON_BYTES = 512 };

typedef struct tw_counters {
    _Atomic uint64_t bytes_sent, bytes_received;
    _Atomic uint64_t messages_sent, messages_received;
} tw_counters;

struct tw_comm {
    tw_transport_ops ops;
    void *self; /* the transport's */
    int rank, size;
    _Atomic double timeout; /* patience.h; a group whose members come and go sets it beside threads that wait */
    double patience;        /* 0: nobody has set it */
    _Atomic double longest; /* seconds that a wait has taken, of all so far */
    _Atomic int quiet;      /* how many want that the log is not told of waits: who follows, or goes on meanwhile */
    _Atomic int tells;      /* a wait of which it was told is not over */
    tw_counters counters;
    tw_channel *channel;        /* the program's own: number 0 */
    tw_mutex mutex;             /* guards what stands below, but for what numbers.h says to be atomic */
    struct tw_numbers *numbers; /* of channels, in order */
    unsigned numbers_end;
    unsigned process;             /* that made it; a forked child is another: process.h */
    _Atomic int broken;           /* also read without the mutex; never goes back to 0 */
    char reason[TW_REASON_BYTES]; /* what broke it; does not change once broken is set */
    struct tw_comm *whole;        /* that this is a part of, and fails with; NULL: it is whole */
    const int *names;             /* what texts call the ranks: numbers of the whole comm; NULL: as they are */
    int separated;                /* a part of its ranks has a comm of its own on this one */
    int maimed;                   /* whole, but a rank was lost that others go on without: destroy waits for nobody */
    _Atomic int users;            /* its owner, its channels, and its subsets: with the last of them it is freed */
};

/* What texts call a rank: of a subset, its number in the whole comm, which is the one a person knows. */
static inline int tw_comm_name(const tw_comm *comm, int rank)
{
    return comm->names ? comm->names[rank] : rank;
}

/* The comm that breaks when this one does. */
static inline tw_comm *tw_comm_whole(tw_comm *comm)
{
    while (comm->whole) comm = comm->whole;
    return comm;
}

#endif
