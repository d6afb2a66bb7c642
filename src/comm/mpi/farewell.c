#include "farewell.h"

#include <thinwire/thinwire_plugin.h>

#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { LEAVES, GIVES_UP };

static const int words[] = {LEAVES, GIVES_UP};

/* --- hearing ------------------------------------------------------------------------------------------------- */

static void hear_next(tw_farewell *all)
{
    all->hearing = MPI_REQUEST_NULL;
    if (all->heard < all->size - 1)
        MPI_Irecv(&all->word, 1, MPI_INT, MPI_ANY_SOURCE, all->tag, all->comm, &all->hearing);
}

static int has_come(tw_farewell *all, MPI_Status *status)
{
    int came = 0;
    return all->hearing != MPI_REQUEST_NULL && MPI_Test(&all->hearing, &came, status) == MPI_SUCCESS && came;
}

void tw_farewell_heed(tw_farewell *all)
{
    MPI_Status status;
    if (atomic_flag_test_and_set(&all->heeded)) return; /* another thread looks */
    while (has_come(all, &status)) {
        all->gone_at[status.MPI_SOURCE] = tw_clock();
        all->failed += all->word == GIVES_UP;
        all->heard++;
        hear_next(all);
    }
    atomic_flag_clear(&all->heeded);
}

double tw_farewell_age(const tw_farewell *all, int rank)
{
    return tw_clock() - all->gone_at[rank];
}

/* --- saying -------------------------------------------------------------------------------------------------- */

void tw_farewell_say(tw_farewell *all, int gives_up)
{
    if (atomic_exchange(&all->said, 1)) return;
    for (int rank = 0; rank < all->size; rank++)
        if (rank != all->rank)
            MPI_Isend(&words[gives_up ? GIVES_UP : LEAVES], 1, MPI_INT, rank, all->tag, all->comm, &all->saying[rank]);
}

static int has_been_said(tw_farewell *all)
{
    int done = 0;
    return MPI_Testall(all->size, all->saying, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS || done;
}

static void farewell_nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000L}, NULL);
}

void tw_farewell_flush(tw_farewell *all, double seconds)
{
    double deadline = tw_clock() + seconds;
    while (!has_been_said(all) && tw_clock() < deadline) farewell_nap();
}

int tw_farewell_await(tw_farewell *all, double seconds)
{
    double deadline = tw_clock() + seconds;
    for (;;) {
        tw_farewell_heed(all);
        if (all->failed) return 0;
        if (all->heard == all->size - 1 && has_been_said(all)) return 1;
        if (tw_clock() >= deadline) return 0;
        farewell_nap();
    }
}

/* --- the whole ----------------------------------------------------------------------------------------------- */

int tw_farewell_create(tw_farewell *all, MPI_Comm comm, int tag)
{
    *all = (tw_farewell){.comm = comm, .tag = tag, .hearing = MPI_REQUEST_NULL, .heeded = ATOMIC_FLAG_INIT};
    MPI_Comm_rank(comm, &all->rank);
    MPI_Comm_size(comm, &all->size);
    all->saying = malloc((size_t)all->size * sizeof *all->saying);
    all->gone_at = malloc((size_t)all->size * sizeof *all->gone_at);
    if (!all->saying || !all->gone_at) return 0;
    for (int rank = 0; rank < all->size; rank++) {
        all->saying[rank] = MPI_REQUEST_NULL;
        all->gone_at[rank] = (double)INFINITY;
    }
    hear_next(all);
    return all->size == 1 || all->hearing != MPI_REQUEST_NULL;
}

void tw_farewell_destroy(tw_farewell *all)
{
    if (all->hearing != MPI_REQUEST_NULL) {
        MPI_Cancel(&all->hearing);
        MPI_Wait(&all->hearing, MPI_STATUS_IGNORE);
    }
    for (int rank = 0; all->saying && all->gone_at && rank < all->size; rank++) /* with one of them, none was filled */
        if (all->saying[rank] != MPI_REQUEST_NULL) MPI_Request_free(&all->saying[rank]);
    free(all->saying);
    free((void *)all->gone_at);
}
