#include "error.h"
#include "task.h"
#include <stdio.h>
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
