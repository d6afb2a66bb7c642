#include "base.h"
#include "agree.h"
#include "checksum.h"
#include "error.h"
#include "model_file.h"
#include "tensor_table.h"
#include "weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which weights they are -------------------------------------------------------------------------------------- */

static uint32_t sum_buffers(const learner *l)
{
    const float *values = l->buffers;
    uint32_t sum = 0;
    for (size_t i = 0; i < l->buffer_tensor_count; i++) {
        const size_t count = tw_tensor_count(&l->buffer_tensors[i]);
        sum += checksum_tensor(l->buffer_tensors[i].name, values, count * sizeof *values);
        values += count;
    }
    return sum;
}

tw_status base_take(worker *w, const tw_state *state)
{
    const char *network = tw_state_text(state, TASK_NETWORK);
    char *whole = realpath(tw_state_text(state, TASK_FILE), NULL);
    const bool fits = whole && strlen(whole) < sizeof w->base.path;
    if (fits) snprintf(w->base.path, sizeof w->base.path, "%s", whole);
    snprintf(w->base.sum, sizeof w->base.sum, "%08x", sum_buffers(w->learner));
    snprintf(w->base.network, sizeof w->base.network, "%s", network ? network : "");
    free(whole);
    return fits ? TW_OK : tw_fail(TW_ERROR_IO, "its path is not known any more, or too long for a checkpoint");
}

tw_status base_put(const worker *w, tw_state *state)
{
    if (!w->learner->based) return TW_OK;
    TW_TRY(tw_state_put_text(state, BASE, w->base.path));
    TW_TRY(tw_state_put_text(state, BASE_SUM, w->base.sum));
    return *w->base.network ? tw_state_put_text(state, BASE_NETWORK, w->base.network) : TW_OK;
}

tw_status base_get(worker *w, const tw_state *state)
{
    const char *path = tw_state_text(state, BASE), *sum = tw_state_text(state, BASE_SUM);
    const char *network = tw_state_text(state, BASE_NETWORK);
    if (!w->learner->based) return TW_OK;
    if (!path || !sum) return tw_fail(TW_ERROR_STATE, "it does not say which weights its adapters were trained beside");
    snprintf(w->base.path, sizeof w->base.path, "%s", path);
    snprintf(w->base.sum, sizeof w->base.sum, "%s", sum);
    snprintf(w->base.network, sizeof w->base.network, "%s", network ? network : "");
    return TW_OK;
}

/* All ranks learn which base rank 0 has. */
static tw_status base_share(worker *w)
{
    base_weights *base = &w->base;
    TW_TRY(agree_text(w->comm, base->path, sizeof base->path));
    TW_TRY(agree_text(w->comm, base->sum, sizeof base->sum));
    return agree_text(w->comm, base->network, sizeof base->network);
}

/* ---- on every rank ----------------------------------------------------------------------------------------------- */

static tw_status take_buffers(void *context, const tw_state *state)
{
    const worker *w = context;
    const learner *l = w->learner;
    TW_TRY(tensor_table_get(state, "", l->buffer_tensors, l->buffer_tensor_count, l->buffers));
    TW_TRY(weights_check_sum(sum_buffers(l), w->base.sum));
    return weights_check_network(state, w->base.network);
}

/* Over a line the base may take longer than all that is trained. Threads of one process have none. */
static bool base_reads_own(const worker *w)
{
    const char *transport = tw_comm_transport(w->comm);
    return w->rank > 0 && strcmp(transport, "threads") != 0 && strcmp(transport, "virtual") != 0;
}

tw_status base_spread(worker *w, const char *path)
{
    const learner *l = w->learner;
    const model_choice best = {MODEL_BEST, true};
    int lacks = w->rank > 0;
    TW_TRY(base_share(w));
    if (base_reads_own(w)) lacks = model_file_read(path, &best, take_buffers, w) != TW_OK;
    TW_TRY(agree_any(w->comm, &lacks));
    return lacks ? tw_comm_broadcast(w->comm, 0, l->buffers, l->buffer_count * sizeof *l->buffers) : TW_OK;
}

tw_status base_load(worker *w)
{
    if (!w->learner->based) return TW_OK;
    TW_TRY(agree_status(w, w->rank == 0 ? model_file_read(w->base.path, NULL, take_buffers, w) : TW_OK));
    return base_spread(w, w->base.path);
}
