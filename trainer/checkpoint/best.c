#include "best.h"
#include "agree.h"
#include "checksum.h"
#include "error.h"
#include "model_file.h"
#include "tensor_table.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SCORE "best.score"

/* ---- which is the best ------------------------------------------------------------------------------------------- */

/* Where a figure is no number, as of a best from a damaged run, any other is better. */
static int is_better(const task_metric *metric, const task_score *score, const task_score *than)
{
    double value = task_metric_value(metric, score), old = task_metric_value(metric, than);
    if (isnan(value) || isnan(old)) return isnan(old) && !isnan(value);
    if (value != old) return metric->falls ? value < old : value > old;
    return score->loss / score->count < than->loss / than->count;
}

void best_observe(worker *w, const evaluation *seen)
{
    best_checkpoint *best = &w->best;
    if (!w->task->has_validation || seen->split != TASK_VALIDATION) return;
    if (best->step > 0 && !is_better(w->task->metrics, &seen->score, &best->score)) return;
    *best = (best_checkpoint){.step = w->step, .folder = w->step, .score = seen->score};
}

/* ---- in a checkpoint --------------------------------------------------------------------------------------------- */

enum { FIGURES = TASK_PARTS + 2 };

tw_status best_put(const best_checkpoint *best, tw_state *state)
{
    double figures[FIGURES] = {best->score.loss, best->score.count};
    if (best->step == 0) return TW_OK;
    memcpy(&figures[2], best->score.parts, sizeof best->score.parts);
    TW_TRY(tw_state_put(state, MODEL_BEST_STEP, TW_U64, 0, NULL, &best->step));
    return tw_state_put(state, SCORE, TW_F64, 1, (size_t[]){FIGURES}, figures);
}

tw_status best_get(const tw_state *state, uint64_t last, best_checkpoint *best)
{
    double figures[FIGURES];
    *best = (best_checkpoint){.step = model_file_best_step(state)};
    best->folder = best->step;
    if (best->step == 0) return TW_OK;
    TW_TRY(tw_state_get(state, SCORE, TW_F64, FIGURES, figures));
    if (best->step > last)
        return tw_fail(TW_ERROR_FORMAT, "its best step is %llu, but it is of step %llu", (unsigned long long)best->step,
                       (unsigned long long)last);
    best->score.loss = figures[0];
    best->score.count = figures[1];
    memcpy(best->score.parts, &figures[2], sizeof best->score.parts);
    return TW_OK;
}

void best_check(worker *w)
{
    char folder[FOLDER_PATH];
    const char *out = w->settings.out;
    if (w->best.step == 0) return;
    /* A run that was killed may have renamed it, and written nothing since. */
    if (out && !folder_holds(out, w->best.folder, folder)) w->best.folder = w->best.step;
    if (!out || w->best.step > w->step || !folder_holds(out, w->best.folder, folder)) w->best = (best_checkpoint){0};
}

void best_convert(worker *w, uint64_t step)
{
    if (w->best.step >= w->step && step > 0) w->best.step = step;
}

tw_status best_rename(worker *w)
{
    const best_checkpoint *best = &w->best;
    if (best->step == best->folder || (w->rank > 0 && !w->first_on_disk)) return TW_OK;
    return folder_rename(w->settings.out, best->folder, best->step);
}

/* ---- at the end -------------------------------------------------------------------------------------------------- */

static tw_status read_best(void *context, const tw_state *state)
{
    worker *w = context;
    learner *l = w->learner;
    TW_TRY(tensor_table_get(state, "", l->tensors, l->tensor_count, l->parameters));
    if (l->based) return TW_OK; /* they are what they were */
    return tensor_table_get(state, "", l->buffer_tensors, l->buffer_tensor_count, l->buffers);
}

static tw_status read_file(worker *w, const char *folder)
{
    char path[CHECKPOINT_PATH];
    tw_status status = model_file_read_own(folder_model(folder, path), NULL, read_best, w);
    if (status == TW_OK) return TW_OK;
    return tw_fail(status, "%s; it was the best by validation: remove %s, and --resume %s tests the last weights",
                   tw_last_error(), folder, w->settings.out);
}

/* Rank 0 alone reads: the others may have disks of their own. */
static tw_status best_load(worker *w, const char *folder)
{
    learner *l = w->learner;
    TW_TRY(worker_settle(w));
    w->last_checksum = worker_checksum(w);
    TW_TRY(agree_status(w, w->rank == 0 ? read_file(w, folder) : TW_OK));
    TW_TRY(worker_share(w));
    l->buffers_stand = true;
    w->judged = w->best.step;
    return TW_OK;
}

tw_status best_take(worker *w)
{
    char folder[FOLDER_PATH];
    uint64_t step = w->best.step;
    const char *out = w->settings.out; /* where workers come and go some may have none: rank 0's counts */
    if (step == 0 || step == w->step) return TW_OK;
    int there = w->rank == 0 && out && folder_holds(out, w->best.folder, folder);
    TW_TRY(agree_any(w->comm, &there));
    if (there) return best_load(w, folder);
    if (w->rank == 0 && out)
        fprintf(stderr,
                "thinwire: the checkpoint of step %llu, the best by validation, is gone from %s; the last weights are "
                "tested\n",
                (unsigned long long)step, out);
    return TW_OK;
}
