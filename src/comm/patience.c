#include "patience.h"

#include "error.h"

#include <math.h>

#define DEFAULT_PATIENCE 1800.0 /* half an hour: longer than an evaluation, a compilation or a checkpoint takes */
#define ASKED 0.5               /* part of the timeout after which a peer is asked: the rest is for its answer */

enum { NAPS = 8 /* a wait of the whole timeout */ };

static int hears(const tw_comm *comm)
{
    return comm->ops.signs != NULL;
}

static double patience_of(const tw_comm *comm)
{
    double set = comm->patience > 0 ? comm->patience : hears(comm) ? DEFAULT_PATIENCE : comm->timeout;
    return fmax(set, comm->timeout);
}

void tw_wait_begin(const tw_comm *comm, tw_wait *wait)
{
    double patience = patience_of(comm);
    *wait = (tw_wait){.silence = hears(comm) ? comm->timeout : patience, .patience = patience, .hears = hears(comm)};
}

void tw_wait_turn(const tw_comm *comm, tw_wait *wait)
{
    if (!hears(comm)) return;
    wait->silence = comm->timeout;
    wait->counted = 0;
}

double tw_wait_nap(const tw_comm *comm, const tw_wait *wait)
{
    return fmin(comm->timeout / NAPS, fmin(wait->silence, wait->patience));
}

void tw_wait_spend(tw_wait *wait, double seconds)
{
    wait->silence -= seconds;
    wait->patience -= seconds;
}

void tw_wait_look(const tw_comm *comm, int peer, tw_wait *wait)
{
    if (!hears(comm)) return;
    int ask = wait->silence <= ASKED * comm->timeout;
    uint64_t signs = comm->ops.signs(comm->self, peer, ask);
    if (wait->counted && signs != wait->signs) wait->silence = comm->timeout;
    wait->signs = signs;
    wait->counted = 1;
}

/* "timeout" and "patience" are what the options are called in every layer, so that whoever reads this knows which one
 * to raise. */
tw_status tw_wait_fail(const tw_comm *comm, int peer, const tw_wait *wait)
{
    int other = tw_comm_name(comm, peer), own = tw_comm_name(comm, comm->rank);
    if (!wait->hears)
        return tw_fail(
            TW_ERROR_PEER,
            "rank %d did not answer rank %d within %g seconds: where it may be busy for longer, set a longer "
            "timeout",
            other, own, patience_of(comm));
    if (wait->silence <= 0)
        return tw_fail(TW_ERROR_PEER,
                       "rank %d did not answer rank %d: nothing was heard of it for a timeout of %g seconds", other,
                       own, comm->timeout);
    return tw_fail(
        TW_ERROR_PEER,
        "rank %d is there, but did not answer rank %d within %g seconds: where it may be busy for longer, set a "
        "longer patience",
        other, own, patience_of(comm));
}
