#include "agree.h"
#include "error.h"
#include "plan.h"
#include <math.h>
#include <stdlib.h>

tw_status plan_question_of(const train_settings *s, const task *work, int workers, layout *tensors,
                           plan_question *question)
{
    learner *l;
    learner_place place = {0, workers, (size_t)s->batch, (uint64_t)s->seed, (nn_precision)s->compute, NULL};
    TW_TRY(task_learner_create(work, &place, &l));
    uint64_t steps = s->steps > 0 ? (uint64_t)s->steps : (uint64_t)s->epochs * l->steps_per_epoch;
    *question = (plan_question){.layout = tensors,
                                .workers = workers,
                                .optimizer = s->optimizer,
                                .steps = steps,
                                .seed = (uint64_t)s->seed,
                                .pace = {.seed = (uint64_t)s->seed}};
    tw_status status = layout_copy(l->tensors, l->tensor_count, tensors);
    task_learner_destroy(l);
    return status;
}

/* The pass and what there is beside it, of the slowest rank. */
static tw_status take_slowest(tw_comm *comm, double seconds[2])
{
    int size = tw_comm_size(comm);
    double(*all)[2] = calloc((size_t)size, sizeof *all);
    if (!all) return tw_fail(TW_ERROR_MEMORY, "no memory for the times of %d ranks", size);
    tw_status status = tw_comm_allgather(comm, seconds, sizeof *all, all);
    for (int rank = 0; rank < size && status == TW_OK; rank++)
        for (int i = 0; i < 2; i++) seconds[i] = fmax(seconds[i], all[rank][i]);
    free(all);
    return status;
}

tw_status plan_find_pass(const train_settings *s, const task *work, tw_comm *comm, pace_model *machine)
{
    double seconds[2] = {0};
    int agreed = 0;
    tw_status status = sim_measure(s, work, &seconds[0], &seconds[1]);
    if (comm) TW_TRY(agree_ranks(comm, status, &agreed));
    TW_TRY(status);
    if (comm) TW_TRY(take_slowest(comm, seconds));
    machine->step_seconds = seconds[0];
    machine->other_seconds = seconds[1];
    return TW_OK;
}
