#include "init_from.h"
#include "agree.h"
#include "base.h"
#include "error.h"
#include "model_file.h"
#include "shape.h"
#include "tensor_table.h"
#include <stdio.h>
#include <string.h>

/* ---- what fits --------------------------------------------------------------------------------------------------- */

/* The last layer's tensors begin alike: "fc.weight", "fc.bias". */
static int is_head(const learner *l, const tw_tensor *tensor)
{
    const char *last = l->tensors[l->tensor_count - 1].name, *dot = strrchr(last, '.');
    return dot && strncmp(tensor->name, last, (size_t)(dot + 1 - last)) == 0;
}

/* *differs: it is of the last layer, which may; or it is already known to be new. */
static tw_status check_tensor(const learner *l, const tw_tensor *tensor, const tw_state *state, int *differs)
{
    tw_state_entry entry;
    char had[SHAPE_TEXT], has[SHAPE_TEXT];
    if (*differs && is_head(l, tensor)) return TW_OK;
    if (!model_file_find(state, tensor->name, &entry))
        return tw_fail(TW_ERROR_STATE,
                       "it has no %s, which the network of this run has; --model and what shapes the "
                       "network have to be as they were",
                       tensor->name);
    if (shape_fits(tensor, &entry)) return TW_OK;
    *differs |= is_head(l, tensor);
    if (is_head(l, tensor)) return TW_OK;
    return tw_fail(TW_ERROR_STATE, "its %s is %s, but %s in the network of this run; the last layer alone may differ",
                   tensor->name, shape_text(entry.dims, entry.shape, had),
                   shape_text(tensor->dims, tensor->shape, has));
}

/* A tensor of the checkpoint's network that this one has not. */
static int is_left(const learner *l, const tw_state_entry *entry)
{
    return model_file_is_weight(entry) && shape_find(l->tensors, l->tensor_count, entry->name) == l->tensor_count &&
           shape_find(l->buffer_tensors, l->buffer_tensor_count, entry->name) == l->buffer_tensor_count;
}

/* A part of a larger network is no network: what is left over counts, too. */
static tw_status check_rest(const learner *l, const tw_state *state)
{
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        TW_TRY(tw_state_at(state, i, &entry));
        if (!is_left(l, &entry)) continue;
        return tw_fail(TW_ERROR_STATE, "the network of this run has no %s, which it has", entry.name);
    }
    return TW_OK;
}

/* ---- the shape --------------------------------------------------------------------------------------------------- */

static int begins_with(const task_ops *ops, const char *past)
{
    return strcmp(past, ops->name) == 0 || (ops->begins_with && strcmp(past, ops->begins_with) == 0);
}

static tw_status check_task(const task_ops *ops, const tw_state *state)
{
    const char *past = tw_state_text(state, "task");
    if (past && begins_with(ops, past)) return TW_OK;
    return tw_fail(TW_ERROR_STATE, "it is of task %s, not %s%s%s", past ? past : "(it does not say)", ops->name,
                   ops->begins_with ? " or " : "", ops->begins_with ? ops->begins_with : "");
}

typedef struct shaping {
    options *set;
    const train_settings *settings;
} shaping;

static tw_status take_shape(void *context, const tw_state *state)
{
    const shaping *to = context;
    TW_TRY(check_task(to->settings->task, state));
    return to->settings->task->take_sizes(to->set, to->settings->own, state);
}

tw_status init_from_shape(options *set, const train_settings *s)
{
    shaping to = {set, s};
    const model_choice best = {MODEL_BEST, true}; /* which one it is, is told when its weights are taken */
    return s->init_from && s->task->take_sizes ? model_file_read(s->init_from, &best, take_shape, &to) : TW_OK;
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

static tw_status take_tensor(const tw_tensor *tensor, const tw_state *state, float *values)
{
    TW_TRY(tensor_table_get(state, "", tensor, 1, values));
    return tensor_table_check_finite(tensor, 1, values);
}

static tw_status take_table(const learner *l, const tw_state *state, const tw_tensor *tensors, size_t count,
                            float *values, int without_head)
{
    for (size_t i = 0; i < count; values += tw_tensor_count(&tensors[i++]))
        if (!without_head || !is_head(l, &tensors[i])) TW_TRY(take_tensor(&tensors[i], state, values));
    return TW_OK;
}

/* Names of what the checkpoint has and this network has not, as many as a line takes. */
static size_t list_left(const learner *l, const tw_state *state, char *text, size_t room)
{
    size_t left = 0, used = 0;
    *text = 0;
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        if (tw_state_at(state, i, &entry) != TW_OK || !is_left(l, &entry)) continue;
        if (used < room) used += (size_t)snprintf(text + used, room - used, "%s%s", left ? ", " : "", entry.name);
        left++;
    }
    if (used >= room) strcpy(text + room - 4, "...");
    return left;
}

/* What was taken, what was left, and what is new. */
static void tell_taken(const worker *w, const tw_state *state)
{
    const learner *l = w->learner;
    char left[512], fresh[256] = "";
    size_t taken = l->buffer_tensor_count, used = 0, count = list_left(l, state, left, sizeof left);
    for (size_t i = 0; i < l->tensor_count; i++) {
        const char *name = l->tensors[i].name;
        taken += !is_head(l, &l->tensors[i]);
        if (is_head(l, &l->tensors[i]) && used < sizeof fresh)
            used += (size_t)snprintf(fresh + used, sizeof fresh - used, "%s%s", used ? ", " : "", name);
    }
    fprintf(stderr, "thinwire: %s: %zu tensors are taken; %zu are left%s%s%s; new: %s\n", w->settings.init_from, taken,
            count, count ? " (" : "", left, count ? ")" : "", fresh);
}

/* Adapters are new; what they are beside is taken. */
static size_t taken_tensors(const learner *l)
{
    return l->based ? 0 : l->tensor_count;
}

static tw_status take(void *context, const tw_state *state)
{
    worker *w = context;
    learner *l = w->learner;
    const size_t count = taken_tensors(l);
    TW_TRY(check_task(w->task->ops, state));
    int another = strcmp(tw_state_text(state, "task"), w->task->ops->name) != 0, differs = another;
    for (size_t i = 0; i < count; i++) TW_TRY(check_tensor(l, &l->tensors[i], state, &differs));
    for (size_t i = 0; i < l->buffer_tensor_count; i++) TW_TRY(check_tensor(l, &l->buffer_tensors[i], state, &differs));
    if (!another) TW_TRY(check_rest(l, state));
    TW_TRY(take_table(l, state, l->tensors, count, l->parameters, differs));
    TW_TRY(take_table(l, state, l->buffer_tensors, l->buffer_tensor_count, l->buffers, 0));
    if (l->based) TW_TRY(base_take(w, state));
    if (another && !w->settings.quiet) tell_taken(w, state);
    if (differs && !another && !w->settings.quiet)
        fprintf(stderr, "thinwire: the weights are those of %s, but for a new last layer (%s): its shape differs\n",
                w->settings.init_from, l->tensors[l->tensor_count - 1].name);
    return TW_OK;
}

tw_status init_from_take(worker *w)
{
    learner *l = w->learner;
    const model_choice best = {MODEL_BEST, w->settings.quiet};
    if (!w->settings.init_from)
        return agree_status(w, tw_fail(TW_ERROR_ARGUMENT, "adapters are trained beside the weights of a network that "
                                                          "is there; --init-from RUN names it"));
    TW_TRY(agree_status(w, w->rank == 0 ? model_file_read(w->settings.init_from, &best, take, w) : TW_OK));
    TW_TRY(base_share(w));
    return l->buffer_count > 0 ? tw_comm_broadcast(w->comm, 0, l->buffers, l->buffer_count * sizeof(float)) : TW_OK;
}
