#include "error.h"
#include "task.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const task_ops *const tasks[] = {&image_task, &lm_task, &asr_task};

const task_ops *task_at(size_t index)
{
    return index < sizeof tasks / sizeof *tasks ? tasks[index] : NULL;
}

tw_status task_find(const char *name, const task_ops **ops)
{
    char names[256] = "";
    for (size_t i = 0, used = 0; task_at(i); i++) {
        *ops = task_at(i);
        if (strcmp(name, (*ops)->name) == 0) return TW_OK;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", (*ops)->name);
    }
    return tw_fail(TW_ERROR_ARGUMENT, "there is no task '%s'; there are: %s", name, names);
}

tw_status task_learner_create(const task *t, const learner_place *place, learner **out)
{
    TW_TRY(t->ops->fits(t, place));
    learner *l = calloc(1, t->ops->learner_bytes);
    if (!l) return tw_fail(TW_ERROR_MEMORY, "no memory for a worker");
    l->task = t;
    l->place = *place;
    tw_status status = t->ops->open(l);
    if (status == TW_OK)
        *out = l;
    else
        task_learner_destroy(l);
    return status;
}

void task_learner_destroy(learner *l)
{
    if (!l) return;
    l->task->ops->close(l);
    free(l);
}

size_t task_slice(const learner *l, uint64_t step)
{
    const learner_place *p = &l->place;
    return ((size_t)(step % l->steps_per_epoch) * (size_t)p->size + (size_t)p->rank) * p->batch;
}

tw_status task_check_batch(const task *t, const learner_place *p, size_t count)
{
    size_t wanted = p->batch * (size_t)p->size;
    if (count >= wanted) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "--batch %zu on %d worker%s takes %zu %s a step, but there are only %zu",
                   p->batch, p->size, p->size == 1 ? "" : "s", wanted, t->batch_of, count);
}

void task_score_add(task_score *sum, const task_score *score)
{
    sum->loss += score->loss;
    sum->count += score->count;
    for (int i = 0; i < TASK_PARTS; i++) sum->parts[i] += score->parts[i];
}

const char *task_metric_text(const task_metric *metric, const task_score *score, char text[TASK_METRIC_TEXT])
{
    double value = metric->value(score);
    snprintf(text, TASK_METRIC_TEXT, metric->percent ? "%s %.2f %%" : "%s %.2f", metric->name,
             metric->percent ? 100 * value : value);
    return text;
}
