/* How fast this machine takes the steps of a worker: alone, over no network, on the real clock. */
#include "error.h"
#include "experiment.h"
#include "worker.h"

enum { UNTIMED = 2, TIMED = 8 };

static tw_status measure_take(worker *w, uint64_t steps)
{
    double loss;
    for (uint64_t i = 0; i < steps; i++, w->step %= w->steps) TW_TRY(worker_step(w, &loss));
    return TW_OK;
}

static tw_status time_steps(worker *w, double *pass, double *other)
{
    totals before, after;
    TW_TRY(worker_begin(w));
    TW_TRY(measure_take(w, UNTIMED));
    TW_TRY(worker_totals(w, &before));
    TW_TRY(measure_take(w, TIMED));
    TW_TRY(worker_totals(w, &after));
    double spent[TOTAL_COUNT];
    for (int i = 0; i < TOTAL_COUNT; i++) spent[i] = (after.values[i] - before.values[i]) / TIMED;
    *pass = spent[TOTAL_SECONDS_COMPUTE];
    *other = spent[TOTAL_SECONDS_TRAINING] - spent[TOTAL_SECONDS_COMPUTE] - spent[TOTAL_SECONDS_WAIT];
    return TW_OK;
}

tw_status sim_measure(const train_settings *settings, const task *work, double *pass, double *other)
{
    tw_comm *comm;
    worker w;
    train_settings alone = *settings;
    alone.workers = 1;
    alone.sync = "allreduce";
    alone.slow = alone.pause = NULL;
    TW_TRY(tw_comm_create_threads(1, &comm));
    tw_status status = worker_create(&alone, work, comm, &w);
    if (status == TW_OK) status = time_steps(&w, pass, other);
    worker_release(&w);
    tw_comm_destroy(comm);
    return status;
}
