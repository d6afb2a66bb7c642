#include "init_from.h"
#include "agree.h"
#include "base.h"
#include "error.h"
#include "model_file.h"
#include "shape.h"
#include "tensor_table.h"
#include "weights.h"
#include <stdio.h>
#include <stdlib.h>
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
    if (!weights_find(state, tensor->name, &entry))
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

/* The next tensor of the checkpoint's network that this one has not, from entry *at on; there is none: 0. */
static int next_left(const tw_state *state, const bool *known, size_t *at, tw_state_entry *entry)
{
    while (tw_state_at(state, *at, entry) == TW_OK)
        if (!known[(*at)++] && weights_include(entry)) return 1;
    return 0;
}

/* A part of a larger network is no network: what is left over counts, too. */
static tw_status check_rest(const tw_state *state, const bool *known)
{
    size_t at = 0;
    tw_state_entry left;
    return next_left(state, known, &at, &left)
               ? tw_fail(TW_ERROR_STATE, "the network of this run has no %s, which it has", left.name)
               : TW_OK;
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
static size_t list_left(const tw_state *state, const bool *known, char *text, size_t room)
{
    size_t left = 0, used = 0, at = 0;
    tw_state_entry entry;
    *text = 0;
    for (; next_left(state, known, &at, &entry); left++)
        if (used < room) used += (size_t)snprintf(text + used, room - used, "%s%s", left ? ", " : "", entry.name);
    if (used >= room) strcpy(text + room - 4, "...");
    return left;
}

/* What was taken, what was left, and what is new. */
static void tell_taken(const worker *w, const tw_state *state, const bool *known)
{
    const learner *l = w->learner;
    char left[512], fresh[256] = "";
    size_t taken = l->buffer_tensor_count, used = 0, count = list_left(state, known, left, sizeof left);
    for (size_t i = 0; i < l->tensor_count; i++) {
        const char *name = l->tensors[i].name;
        taken += !is_head(l, &l->tensors[i]);
        if (is_head(l, &l->tensors[i]) && used < sizeof fresh)
            used += (size_t)snprintf(fresh + used, sizeof fresh - used, "%s%s", used ? ", " : "", name);
    }
    fprintf(stderr, "thinwire: %s: %zu tensors are taken; %zu are left%s%s%s; new: %s\n", w->settings.init_from, taken,
            count, count ? " (" : "", left, count ? ")" : "", fresh);
}

/* So much of a line as a person reads, up to the end of a character. */
static int shown_of(const char *text)
{
    enum { SHOWN = 80 };
    size_t length = strcspn(text, "\n");
    if (length > SHOWN) length = SHOWN;
    while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) length--;
    return (int)length;
}

/* One label, or of letters, which are one line, those from where they begin to differ. */
static void tell_labels(const worker *w, const char *had, const char *has)
{
    size_t at = 0;
    while (had[at] && had[at] == has[at]) at++;
    size_t differs = at;
    while (at > 0 && had[at - 1] != '\n') at--;
    if (at + (size_t)shown_of(had + at) <= differs) at = differs;
    while (at > 0 && ((unsigned char)had[at] & 0xc0) == 0x80) at--; /* to the first byte of a character */
    fprintf(stderr,
            "thinwire: warning: the last layer of %s (%s) is taken, but was trained for other labels: where it had "
            "\"%.*s\" this run has \"%.*s\"\n",
            w->settings.init_from, w->learner->tensors[w->learner->tensor_count - 1].name, shown_of(had + at), had + at,
            shown_of(has + at), has + at);
}

/* A last layer of equal shape is taken whatever its rows stood for, as an older checkpoint does not say it. */
static tw_status compare_labels(const worker *w, const tw_state *state)
{
    const task_ops *ops = w->task->ops;
    const char *had = ops->labels ? tw_state_text(state, ops->labels) : NULL, *has = NULL;
    tw_state *own;
    if (!had) return TW_OK;
    TW_TRY(tw_state_create(&own));
    tw_status status = ops->describe(w->learner, own);
    if (status == TW_OK) has = tw_state_text(own, ops->labels);
    if (has && strcmp(had, has) != 0) tell_labels(w, had, has);
    tw_state_destroy(own);
    return status;
}

/* Adapters are new; what they are beside is taken. */
static size_t taken_tensors(const learner *l)
{
    return l->based ? 0 : l->tensor_count;
}

static tw_status take_known(worker *w, const tw_state *state, const bool *known)
{
    learner *l = w->learner;
    const size_t count = taken_tensors(l);
    int another = strcmp(tw_state_text(state, "task"), w->task->ops->name) != 0, differs = another;
    for (size_t i = 0; i < count; i++) TW_TRY(check_tensor(l, &l->tensors[i], state, &differs));
    for (size_t i = 0; i < l->buffer_tensor_count; i++) TW_TRY(check_tensor(l, &l->buffer_tensors[i], state, &differs));
    if (!another) TW_TRY(check_rest(state, known));
    TW_TRY(take_table(l, state, l->tensors, count, l->parameters, differs));
    TW_TRY(take_table(l, state, l->buffer_tensors, l->buffer_tensor_count, l->buffers, 0));
    if (l->based) TW_TRY(base_take(w, state));
    if (!differs && count > 0 && !w->settings.quiet) TW_TRY(compare_labels(w, state));
    if (another && !w->settings.quiet) tell_taken(w, state, known);
    if (differs && !another && !w->settings.quiet)
        fprintf(stderr, "thinwire: the weights are those of %s, but for a new last layer (%s): its shape differs\n",
                w->settings.init_from, l->tensors[l->tensor_count - 1].name);
    return TW_OK;
}

static tw_status take(void *context, const tw_state *state)
{
    worker *w = context;
    const learner *l = w->learner;
    TW_TRY(check_task(w->task->ops, state));
    bool *known = calloc(tw_state_count(state) + 1, sizeof *known);
    if (!known) return tw_fail(TW_ERROR_MEMORY, "no memory for the names of its tensors");
    shape_mark(state, l->tensors, l->tensor_count, known);
    shape_mark(state, l->buffer_tensors, l->buffer_tensor_count, known);
    tw_status status = take_known(w, state, known);
    free(known);
    return status;
}

tw_status init_from_take(worker *w)
{
    learner *l = w->learner;
    const model_choice best = {MODEL_BEST, w->settings.quiet};
    if (!w->settings.init_from)
        return agree_status(w, tw_fail(TW_ERROR_ARGUMENT, "adapters are trained beside the weights of a network that "
                                                          "is there; --init-from RUN names it"));
    TW_TRY(agree_status(w, w->rank == 0 ? model_file_read(w->settings.init_from, &best, take, w) : TW_OK));
    if (l->based) return base_spread(w, w->settings.init_from);
    return l->buffer_count > 0 ? tw_comm_broadcast(w->comm, 0, l->buffers, l->buffer_count * sizeof(float)) : TW_OK;
}
