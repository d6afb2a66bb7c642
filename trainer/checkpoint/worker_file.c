#include "worker_file.h"
#include "error.h"
#include <limits.h>
#include <math.h>
#include <string.h>

tw_status worker_file_put_sums(tw_state *state, const totals *sums, const double epoch[EPOCH_COUNT])
{
    TW_TRY(tw_state_put(state, "totals", TW_F64, 1, (size_t[]){TOTAL_COUNT}, sums->values));
    return tw_state_put(state, "epoch", TW_F64, 1, (size_t[]){EPOCH_COUNT}, epoch);
}

/* An older file does not tell how long data were waited for: no time is known. Still older ones do not tell what was
 * sent between hosts. There were none: it is all that was sent. */
static tw_status get_totals(const tw_state *state, double *values)
{
    if (tw_state_get(state, "totals", TW_F64, TOTAL_COUNT, values) == TW_OK) return TW_OK;
    values[TOTAL_SECONDS_DATA] = 0;
    if (tw_state_get(state, "totals", TW_F64, TOTAL_SECONDS_DATA, values) == TW_OK) return TW_OK;
    TW_TRY(tw_state_get(state, "totals", TW_F64, TOTAL_BYTES_BETWEEN, values));
    values[TOTAL_BYTES_BETWEEN] = values[TOTAL_BYTES_SENT];
    return TW_OK;
}

/* An older file has room for six parts. */
static tw_status get_epoch(const tw_state *state, double epoch[EPOCH_COUNT])
{
    enum { OLD_PARTS = 6, OLD_SKIPPED = EPOCH_PARTS + OLD_PARTS, OLD_COUNT };
    double old[OLD_COUNT];
    if (tw_state_get(state, "epoch", TW_F64, OLD_COUNT, old) != TW_OK)
        return tw_state_get(state, "epoch", TW_F64, EPOCH_COUNT, epoch);
    memset(epoch, 0, EPOCH_COUNT * sizeof *epoch);
    memcpy(epoch, old, OLD_SKIPPED * sizeof *old);
    epoch[EPOCH_SKIPPED] = old[OLD_SKIPPED];
    return TW_OK;
}

tw_status worker_file_get_sums(const tw_state *state, totals *sums, double epoch[EPOCH_COUNT])
{
    TW_TRY(get_totals(state, sums->values));
    return get_epoch(state, epoch);
}

void worker_file_resume_epoch(worker *w, const double epoch[EPOCH_COUNT])
{
    task_score *e = &w->epoch_score;
    *e = (task_score){.loss = epoch[EPOCH_LOSS], .count = epoch[EPOCH_ITEMS]};
    memcpy(e->parts, &epoch[EPOCH_PARTS], sizeof e->parts);
    w->skipped_in_a_row = epoch[EPOCH_SKIPPED] > 0 ? (int)fmin(epoch[EPOCH_SKIPPED], INT_MAX) : 0;
}
