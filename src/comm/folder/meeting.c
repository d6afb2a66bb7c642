/* Every rank draws a number and writes it, with the numbers that it has seen of the others, into "hello-RANK". A group
 * is complete when all these files have the same numbers. So a file that an earlier run left there completes nothing:
 * its rank cannot have seen the numbers of this run. */
#include "meeting.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

void folder_nap(const store *at, double *length, double end)
{
    *length = fmin(fmax(1.25 * *length, at->shortest_nap), at->longest_nap);
    double seconds = fmax(fmin(*length, end - tw_clock()), 0);
    const struct timespec nap = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
    nanosleep(&nap, NULL);
}

typedef uint64_t numbers[FOLDER_RANKS];

typedef struct meeting {
    const store *at;
    int rank, size;
    numbers seen, written;
} meeting;

static void name_hello(int rank, char name[STORE_NAME])
{
    snprintf(name, STORE_NAME, "hello-%d", rank);
}

static tw_status say_hello(meeting *me, double seconds)
{
    char name[STORE_NAME];
    const store_header header = {.session = me->seen[me->rank], .size = sizeof(uint64_t) * (size_t)me->size};
    name_hello(me->rank, name);
    memcpy(me->written, me->seen, sizeof me->written);
    return store_write(me->at, name, &header, me->seen, seconds);
}

/* *agrees: it has the numbers that this rank had. One that counts other ranks may be of an earlier run. */
static tw_status read_hello(meeting *me, int rank, double seconds, int *agrees)
{
    char name[STORE_NAME];
    numbers theirs;
    store_header header;
    name_hello(rank, name);
    store_found found = store_read(me->at, name, theirs, sizeof theirs, seconds, &header);
    *agrees = 0;
    if (found != STORE_WHOLE || header.size != sizeof(uint64_t) * (size_t)me->size) return TW_OK; /* it will come */
    if (rank == me->rank && header.session != me->seen[rank])
        return tw_fail(TW_ERROR_PEER, "another process takes part in %s as rank %d: give each a rank of its own",
                       me->at->path, rank);
    int is_known = header.session == me->seen[rank];
    me->seen[rank] = header.session;
    *agrees = is_known && memcmp(theirs, me->seen, header.size) == 0;
    return TW_OK;
}

static tw_status read_all(meeting *me, double end, int *missing)
{
    int agrees, first = -1;
    for (int r = 0; r < me->size; r++) {
        tw_status status = read_hello(me, r, end - tw_clock(), &agrees);
        if (status != TW_OK) return status;
        if (!agrees && first < 0) first = r;
    }
    *missing = first;
    return TW_OK;
}

static tw_status give_up(const meeting *me, int missing, double seconds)
{
    char reason[STORE_REASON];
    me->at->ops->tell(me->at->self, reason);
    return tw_fail(TW_ERROR_PEER, "rank %d of %d did not come to %s within %g seconds%s", missing, me->size,
                   me->at->path, seconds, reason);
}

static tw_status check_stopped(const folder_limits *limits)
{
    if (!limits->stopped || !limits->stopped(limits->context)) return TW_OK;
    return tw_fail(TW_ERROR_PEER, "joining was stopped by this process's own program");
}

tw_status folder_meet(const store *at, int rank, int size, const folder_limits *limits, uint64_t *session)
{
    meeting me = {.at = at, .rank = rank, .size = size};
    double end = tw_clock() + limits->seconds, nap = 0;
    int missing = 0;
    while (!me.seen[rank])
        if (getrandom(&me.seen[rank], sizeof(uint64_t), 0) != sizeof(uint64_t))
            return tw_fail(TW_ERROR_SYSTEM, "this system has no random numbers");
    tw_status status = say_hello(&me, limits->seconds);
    while (status == TW_OK && (status = check_stopped(limits)) == TW_OK &&
           (status = read_all(&me, end, &missing)) == TW_OK) {
        if (missing < 0) break;
        if (tw_clock() >= end)
            status = give_up(&me, missing, limits->seconds);
        else if (memcmp(me.seen, me.written, sizeof me.seen) != 0)
            status = say_hello(&me, end - tw_clock());
        else
            folder_nap(at, &nap, end);
    }
    if (status == TW_OK) *session = me.seen[0]; /* rank 0 completes one group with a number */
    return status;
}
