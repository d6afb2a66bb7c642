#include "trained.h"

#include "error.h"
#include "model_file.h"
#include "tensor_table.h"
#include "weights.h"

static tw_status find_task(const tw_state *state, const task_ops **ops)
{
    const char *name = tw_state_text(state, "task");
    if (!name) return tw_fail(TW_ERROR_FORMAT, "it does not say its task: thinwire train did not write it");
    return task_find(name, ops);
}

static tw_status trained_take(const tw_state *state, const tw_tensor *tensors, size_t count, float *values)
{
    TW_TRY(tensor_table_get(state, "", tensors, count, values));
    return tensor_table_check_finite(tensors, count, values);
}

static tw_status trained_load(void *trained_of_it, const tw_state *state)
{
    trained *t = trained_of_it;
    size_t elements;
    TW_TRY(find_task(state, &t->ops));
    TW_TRY(weights_elements(state, &elements));
    if (!t->ops->predictor_open)
        return tw_fail(TW_ERROR_UNSUPPORTED, "it is of thinwire train %s, whose networks answer nothing", t->ops->name);
    TW_TRY(t->ops->predictor_open(state, elements, &t->predictor));
    const task_predictor *p = t->predictor;
    TW_TRY(trained_take(state, p->tensors, p->tensor_count, p->parameters));
    return trained_take(state, p->buffer_tensors, p->buffer_tensor_count, p->buffers);
}

tw_status trained_open(const char *path, const char *which, trained *t)
{
    *t = (trained){0};
    tw_status status = model_file_read(path, &(model_choice){.which = which}, trained_load, t);
    if (status != TW_OK) trained_close(t);
    return status;
}

void trained_close(trained *t)
{
    if (t->predictor) t->ops->predictor_close(t->predictor);
    t->predictor = NULL;
}
