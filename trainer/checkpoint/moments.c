#include "moments.h"
#include "agree.h"
#include "error.h"
#include "exchange.h"
#include "folder.h"
#include "model_file.h"
#include "scheme.h"
#include "tensor_table.h"
#include "worker_file.h"
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_by_hand.h>

static int keeps_moments(const char *spec)
{
    return scheme_adapts(spec) || scheme_is_exact(spec);
}

int moments_may_move(int optimizer, const char *before, const char *now)
{
    return optimizer == OPTIMISER_ADAMW && keeps_moments(before) && keeps_moments(now) &&
           (scheme_adapts(before) || scheme_adapts(now));
}

const char *moments_may_move_to(int optimizer, const char *before)
{
    if (optimizer != OPTIMISER_ADAMW || !keeps_moments(before)) return NULL;
    return scheme_adapts(before) ? "allreduce, fp16, bf16, dgc-adam or onebit-adam" : "dgc-adam or onebit-adam";
}

/* On their way. */
typedef struct moments {
    uint64_t steps;
    float *values[2]; /* the first and the second, as the parameters lie */
    float **places[2];
} moments;

static void moments_release(moments *m)
{
    for (int i = 0; i < 2; i++) {
        free(m->values[i]);
        free(m->places[i]);
    }
}

static tw_status moments_make(const worker *w, moments *m)
{
    const learner *l = w->learner;
    for (int i = 0; i < 2; i++) {
        m->values[i] = malloc((l->parameter_count + 1) * sizeof **m->values);
        m->places[i] = malloc((l->tensor_count + 1) * sizeof **m->places);
        if (!m->values[i] || !m->places[i])
            return tw_fail(TW_ERROR_MEMORY, "no memory for the moments of %zu parameters", l->parameter_count);
        tensor_table_place(l->tensors, l->tensor_count, m->values[i], m->places[i]);
    }
    return TW_OK;
}

static tw_status read_optimiser(const worker *w, const tw_state *state, moments *m)
{
    const learner *l = w->learner;
    float steps;
    TW_TRY(tensor_table_get(state, OPTIMISER_PREFIX "momentum.", l->tensors, l->tensor_count, m->values[0]));
    TW_TRY(tensor_table_get(state, OPTIMISER_PREFIX "second_moment.", l->tensors, l->tensor_count, m->values[1]));
    TW_TRY(tw_state_get(state, OPTIMISER_PREFIX "steps", TW_F32, 1, &steps));
    if (!(steps >= 0 && steps < 1e18F))
        return tw_fail(TW_ERROR_FORMAT, "its optimiser has done %g steps", (double)steps);
    m->steps = (uint64_t)steps;
    return TW_OK;
}

static tw_status of_optimiser(const worker *w, const regrouping *from, moments *m)
{
    char path[CHECKPOINT_PATH];
    tw_state *state;
    TW_TRY(checksum_load(folder_model(from->folder, path), &state));
    tw_status status = model_file_named(path, read_optimiser(w, state, m));
    tw_state_destroy(state);
    return status;
}

static tw_status of_scheme(const worker *w, const char *before, const regrouping *from, moments *m)
{
    const learner *l = w->learner;
    char *spec;
    regroup_reader files = {from, NULL};
    TW_TRY(worker_spec(w, before, &spec));
    tw_status status =
        tw_reducer_moments_of_state(spec, l->tensors, l->tensor_count, from->stamp->workers, regroup_read, &files,
                                    WORKER_FILE_SCHEME, &m->steps, m->places[0], m->places[1]);
    tw_state_destroy(files.open);
    free(spec);
    return status == TW_OK ? TW_OK : regroup_name(w, from, status);
}

static tw_status to_scheme(worker *w, const moments *m)
{
    const learner *l = w->learner;
    tw_state *state;
    TW_TRY(tw_state_create(&state));
    tw_status status =
        tw_reducer_state_of_moments(w->spec, l->tensors, l->tensor_count, m->steps, (const float *const *)m->places[0],
                                    (const float *const *)m->places[1], w->rank, w->size, WORKER_FILE_SCHEME, state);
    if (status == TW_OK) status = w->exchange->load(w, WORKER_FILE_SCHEME, state);
    tw_state_destroy(state);
    return status;
}

static tw_status to_optimiser(worker *w, const moments *m)
{
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    size_t count = optimiser_buffers(w->optimiser, buffers);
    for (size_t i = 0; i + 1 < count; i++) memcpy(buffers[i].values, m->values[i], buffers[i].count * sizeof(float));
    *buffers[count - 1].values = (float)m->steps;
    return TW_OK;
}

static tw_status hear_moments(worker *w, moments *m)
{
    size_t bytes = w->learner->parameter_count * sizeof(float);
    TW_TRY(tw_comm_broadcast(w->comm, 0, &m->steps, sizeof m->steps));
    for (int i = 0; i < 2; i++) TW_TRY(tw_comm_broadcast(w->comm, 0, m->values[i], bytes));
    return TW_OK;
}

/* Rank 0 reads what has to be read. */
static tw_status move_by(worker *w, const char *before, const regrouping *from, moments *m)
{
    TW_TRY(agree_status(w, moments_make(w, m)));
    tw_status status = TW_OK;
    if (w->rank == 0) status = scheme_adapts(before) ? of_scheme(w, before, from, m) : of_optimiser(w, from, m);
    TW_TRY(agree_status(w, status));
    TW_TRY(hear_moments(w, m));
    status = scheme_adapts(w->spec) ? to_scheme(w, m) : to_optimiser(w, m);
    return agree_status(w, status == TW_OK ? TW_OK : regroup_name(w, from, status));
}

tw_status moments_move(worker *w, const char *before, const regrouping *from)
{
    moments m = {0};
    tw_status status = move_by(w, before, from, &m);
    moments_release(&m);
    return status;
}
