/* How fast this machine takes the steps of a worker: alone, over no network, on the real clock. */
#include "error.h"
#include "experiment.h"
#include "median.h"
#include "worker.h"

/* Steps of a small network take milliseconds, and a machine is as fast as it is over a second. */
enum { UNTIMED = 2, LEAST = 8, MOST = 2000 };
#define LEAST_SECONDS 1.0

static tw_status take_step(worker *w)
{
    double loss;
    TW_TRY(worker_step(w, &loss));
    w->step %= w->steps;
    return TW_OK;
}

static tw_status time_steps(worker *w, double *pass, double *other)
{
    double passes[MOST], others[MOST], all = 0;
    size_t count = 0;
    totals before, after;
    TW_TRY(worker_begin(w));
    for (int i = 0; i < UNTIMED; i++) TW_TRY(take_step(w));
    TW_TRY(worker_totals(w, &before));
    for (; count < LEAST || (count < MOST && all < LEAST_SECONDS); count++, before = after) {
        double spent[TOTAL_COUNT];
        TW_TRY(take_step(w));
        TW_TRY(worker_totals(w, &after));
        for (int i = 0; i < TOTAL_COUNT; i++) spent[i] = after.values[i] - before.values[i];
        passes[count] = spent[TOTAL_SECONDS_COMPUTE];
        others[count] = spent[TOTAL_SECONDS_TRAINING] - spent[TOTAL_SECONDS_COMPUTE] - spent[TOTAL_SECONDS_WAIT];
        all += spent[TOTAL_SECONDS_TRAINING];
    }
    *pass = median_of(passes, count);
    *other = median_of(others, count);
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
    if (status == TW_OK) {
        w.schedule.rate = 0; /* however many steps they are, they do not diverge */
        status = time_steps(&w, pass, other);
    }
    worker_release(&w);
    tw_comm_destroy(comm);
    return status;
}
