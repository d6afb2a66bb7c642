#include "task.h"
#include "words.h"
#include <string.h>

#define TASK_AT(name) &name##_task,

static const task_ops *const tasks[] = {TASKS(TASK_AT)};

const task_ops *task_at(size_t index)
{
    return index < sizeof tasks / sizeof *tasks ? tasks[index] : NULL;
}

const char *task_name(size_t index)
{
    return task_at(index) ? task_at(index)->name : NULL;
}

tw_status task_find(const char *name, const task_ops **ops)
{
    for (size_t i = 0; task_at(i); i++) {
        *ops = task_at(i);
        if (strcmp(name, (*ops)->name) == 0) return TW_OK;
    }
    return words_refuse("task", name, strlen(name), task_name);
}
