/* farewell.h - who of the group has left.
 *
 * MPI does not tell that a rank takes no more part. So a rank that gives up, or destroys its comm, says so to all
 * others in a message of its own, on the highest tag, and whoever waits for it looks at these messages now and then. A
 * process that dies says nothing. */
#ifndef TW_COMM_MPI_FAREWELL_H
#define TW_COMM_MPI_FAREWELL_H

#include <mpi.h>
#include <stdatomic.h>

typedef struct tw_farewell {
    MPI_Comm comm;
    int tag, rank, size;
    _Atomic int said;          /* by this rank */
    MPI_Request *saying;       /* one a rank */
    MPI_Request hearing;       /* MPI_REQUEST_NULL when all have been heard */
    int word;                  /* of the next one */
    atomic_flag heeded;        /* set while a thread looks */
    _Atomic double *gone_at;   /* one a rank, on tw_clock(); INFINITY: it is there */
    _Atomic int heard, failed; /* farewells; of them, those of ranks that gave up */
} tw_farewell;

/* 0: no memory, or MPI refuses. */
int tw_farewell_create(tw_farewell *all, MPI_Comm comm, int tag);
/* Takes nothing back from MPI that could still come: nobody may wait any more. */
void tw_farewell_destroy(tw_farewell *all);

/* Tells the others, once; gives_up: the group is of no more use. */
void tw_farewell_say(tw_farewell *all, int gives_up);
/* Waits until the others have been told, `seconds` at most. */
void tw_farewell_flush(tw_farewell *all, double seconds);
/* Waits until all others have left, one has given up, or `seconds` have passed. 1: all have left in good order. */
int tw_farewell_await(tw_farewell *all, double seconds);

/* Looks whether anybody has left. */
void tw_farewell_heed(tw_farewell *all);
/* Seconds since the rank's farewell was heard; below 0: it is there. */
double tw_farewell_age(const tw_farewell *all, int rank);

#endif
