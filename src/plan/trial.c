/* One rank without peers: what is left of an exchange is what the scheme makes its caller pay. */
#include "error.h"
#include "memory.h"
#include "plan.h"

#include <math.h>

enum { TURNS = 3 }; /* timed; the least counts, as a busy neighbour makes none shorter */

static tw_status take_turns(tw_phantom *phantom, uint64_t steps, uint64_t turns, double *least)
{
    *least = INFINITY;
    for (uint64_t turn = 0; turn <= turns; turn++) {
        double begun = tw_clock();
        for (uint64_t step = 0; step < steps; step++) TW_TRY(tw_phantom_step(phantom, turn * steps + step, NULL, NULL));
        if (turn > 0) *least = fmin(*least, tw_clock() - begun);
    }
    return TW_OK;
}

static tw_status trial_measure(const tw_thin *thin, tw_comm *comm, const float *noise, const char *spec, int once,
                               tw_trial *trial)
{
    tw_phantom *phantom;
    double every = tw_spec_number(spec, "every");
    size_t before = tw_memory_watched(),
           own = thin->elements * sizeof(float); /* the gradients that a worker has anyway */
    TW_TRY(tw_phantom_create(comm, spec, thin->tensors, thin->count, noise, 1, &phantom));
    tw_status status = take_turns(phantom, every >= 1 ? (uint64_t)every : 1, once ? 1 : TURNS, &trial->seconds);
    trial->memory_bytes = fmax(0, (double)tw_memory_watched() - (double)before - (double)own);
    tw_phantom_destroy(phantom);
    return status;
}

tw_status tw_trial_take(const tw_thin *thin, const float *noise, const char *spec, int once, tw_trial *trial)
{
    tw_comm *comm;
    TW_TRY(tw_comm_create_threads(1, &comm));
    tw_memory_watch();
    tw_status status = trial_measure(thin, comm, noise, spec, once, trial);
    tw_memory_unwatch();
    tw_comm_destroy(comm);
    trial->seconds *= thin->times;
    trial->memory_bytes *= thin->times;
    return status;
}
