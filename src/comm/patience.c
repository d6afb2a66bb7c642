#include "patience.h"

#include "error.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

#include <thinwire/thinwire_plugin.h>

#define DEFAULT_PATIENCE 1800.0 /* half an hour: longer than an evaluation, a compilation or a checkpoint takes */
#define ASKED 0.5               /* part of the timeout after which a peer is asked: the rest is for its answer */
#define LONG 10.0               /* seconds more than any wait before, of which a person wants to know */
#define ANSWER 1.0              /* seconds that it takes to learn whose program is busy */
#define FOREVER 1e9             /* the longest patience: for who has it nobody is late */

enum {
    NAPS = 8,  /* a wait of the whole timeout */
    NAMED = 4, /* ranks in a line, of any number */
    NAMES = 512
};

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
    const double longest = comm->ops.is_busy ? fmin(ANSWER, comm->timeout / NAPS) : comm->timeout / NAPS;
    return fmin(longest, fmin(wait->silence, wait->patience));
}

void tw_wait_spend(tw_wait *wait, double seconds)
{
    wait->silence -= seconds;
    wait->patience -= seconds;
    wait->waited += seconds;
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

/* ---- whom a wait is for ------------------------------------------------------------------------------------------ */

/* All are asked: the one that is waited for may wait itself. */
static int write_busy(const tw_comm *comm, char text[NAMES])
{
    int count = 0, used = 0;
    for (int r = 0; r < comm->size; r++) {
        const char *where = "";
        if (r == comm->rank || !comm->ops.is_busy(comm->self, r, &where) || count++ >= NAMED) continue;
        used += snprintf(text + used, NAMES - (size_t)used, "%srank %d%s%.100s", used ? ", " : "",
                         tw_comm_name(comm, r), *where ? " at " : "", where);
    }
    if (count > NAMED) snprintf(text + used, NAMES - (size_t)used, " and %d more", count - NAMED);
    return count;
}

/* From when on a wait is a long one. */
static double limit_of(const tw_comm *comm, const tw_comm *whole)
{
    return whole->longest + fmin(LONG, comm->timeout);
}

void tw_wait_tell(tw_comm *comm, tw_wait *wait)
{
    char names[NAMES];
    tw_comm *whole = tw_comm_whole(comm);
    if (!comm->ops.is_busy || comm->ops.is_told_of || whole->quiet || comm->patience >= FOREVER) return;
    if (wait->told || wait->waited < limit_of(comm, whole) - ANSWER) return;
    if (!write_busy(comm, names) || atomic_exchange(&whole->tells, 1)) return;
    /* Not before it is this wait's turn: one that was told of may have ended meanwhile, and was longer. */
    wait->told = wait->waited >= limit_of(comm, whole);
    if (!wait->told) {
        whole->tells = 0;
        return;
    }
    tw_log(TW_LOG_WARNING,
           "this process waits for ranks whose machines answer and whose programs are busy: %s; for up to %.0f seconds "
           "more",
           names, wait->patience);
}

void tw_wait_end(tw_comm *comm, const tw_wait *wait)
{
    tw_comm *whole = tw_comm_whole(comm);
    if (wait->waited > whole->longest) whole->longest = wait->waited;
    if (!wait->told) return;
    whole->tells = 0;
    tw_log(TW_LOG_WARNING, "after %.0f seconds the group goes on", wait->waited);
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
