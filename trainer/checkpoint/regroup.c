#include "regroup.h"
#include "agree.h"
#include "error.h"
#include "exchange.h"
#include "folder.h"
#include "worker_file.h"
#include <stdlib.h>

static int is_lost(const regrouping *from, int old)
{
    return from->files->holders[old] < 0;
}

/* An old worker's file, checked. */
static tw_status open_file(const regrouping *from, int old, tw_state **out)
{
    char path[CHECKPOINT_PATH];
    uint64_t step;
    tw_state *state;
    TW_TRY(checksum_load(folder_worker(from->folder, old, path), &state));
    tw_status status = stamp_check(from->stamp, old, state, path);
    if (status == TW_OK) status = tw_state_get(state, "step", TW_U64, 1, &step);
    if (status == TW_OK && step != from->step)
        status = tw_fail(TW_ERROR_STATE, "%s is of step %llu, the model beside it of step %llu", path,
                         (unsigned long long)step, (unsigned long long)from->step);
    if (status == TW_OK)
        *out = state;
    else
        tw_state_destroy(state);
    return status;
}

/* ---- what the scheme held back ----------------------------------------------------------------------------------- */

tw_status regroup_read(void *context, int rank, const tw_state **state)
{
    regroup_reader *self = context;
    tw_state_destroy(self->open);
    self->open = NULL;
    if (!is_lost(self->from, rank)) TW_TRY(open_file(self->from, rank, &self->open));
    *state = self->open;
    return TW_OK;
}

tw_status regroup_name(const worker *w, const regrouping *from, tw_status status)
{
    return tw_fail(status, "%s cannot be taken over by %d workers: %s", from->folder, w->size, tw_last_error());
}

static tw_status take_scheme(worker *w, const regrouping *from)
{
    regroup_reader files = {from, NULL};
    tw_state *state;
    if (from->without_scheme) return TW_OK;
    TW_TRY(tw_state_create(&state));
    tw_status status = w->exchange->regroup(w, from->stamp->workers, WORKER_FILE_SCHEME, regroup_read, &files, state);
    tw_state_destroy(state);
    tw_state_destroy(files.open);
    return status == TW_OK ? TW_OK : regroup_name(w, from, status);
}

/* ---- the sums ---------------------------------------------------------------------------------------------------- */

typedef struct past {
    totals sums;
    double epoch[EPOCH_COUNT];
} past;

static void add_past(past *all, const past *more)
{
    double skipped = more->epoch[EPOCH_SKIPPED];
    for (int i = 0; i < TOTAL_COUNT; i++) all->sums.values[i] += more->sums.values[i];
    for (int i = 0; i < EPOCH_SKIPPED; i++) all->epoch[i] += more->epoch[i];
    if (skipped > all->epoch[EPOCH_SKIPPED]) all->epoch[EPOCH_SKIPPED] = skipped;
}

/* Each rank reads some of the files. */
static tw_status read_past(const worker *w, const regrouping *from, past *own)
{
    *own = (past){0};
    for (int old = w->rank; old < from->stamp->workers; old += w->size) {
        tw_state *state;
        past one;
        if (is_lost(from, old)) continue;
        TW_TRY(open_file(from, old, &state));
        tw_status status = worker_file_get_sums(state, &one.sums, one.epoch);
        tw_state_destroy(state);
        TW_TRY(status);
        add_past(own, &one);
    }
    return TW_OK;
}

static tw_status add_up(const worker *w, const past *own, past *all)
{
    past *each = calloc((size_t)w->size, sizeof *each);
    if (!each) return tw_fail(TW_ERROR_MEMORY, "no memory to hear %d workers", w->size);
    tw_status status = tw_comm_allgather(w->comm, own, sizeof *own, each);
    *all = (past){0};
    for (int r = 0; r < w->size; r++) add_past(all, &each[r]);
    free(each);
    return status;
}

/* What is counted a worker, each has the mean of; what they have seen together stays as much as it was, and a lost one
 * has seen as much as any other. The epoch's figures are summed over the workers, so one of them has it all. */
static void take_past(worker *w, past *all, const regrouping *from)
{
    int workers = from->stamp->workers;
    for (int i = 0; i < TOTAL_COUNT; i++) w->before.values[i] = all->sums.values[i] / (workers - from->files->lost);
    w->before.values[TOTAL_ITEMS] *= (double)workers / w->size;
    for (int i = 0; w->rank > 0 && i < EPOCH_SKIPPED; i++) all->epoch[i] = 0;
    worker_file_resume_epoch(w, all->epoch);
}

tw_status regroup_run(worker *w, const regrouping *from)
{
    past own, all;
    TW_TRY(agree_status(w, read_past(w, from, &own)));
    TW_TRY(add_up(w, &own, &all));
    take_past(w, &all, from);
    return agree_status(w, take_scheme(w, from));
}
