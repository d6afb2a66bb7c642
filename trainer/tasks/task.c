#include "task.h"
#include "error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Each line of the note behind a semicolon: what was left out is why there are few. */
enum { NOTE_TEXT = 2 * TASK_NOTE };
static const char *note_text(const task *t, char text[NOTE_TEXT])
{
    size_t used = 0;
    *text = '\0';
    for (const char *line = t->note; *line; line += *line == '\n') {
        const size_t length = strcspn(line, "\n");
        used += (size_t)snprintf(text + used, NOTE_TEXT - used, "; %.*s", (int)length, line);
        line += length;
    }
    return text;
}

tw_status task_check_batch(const task *t, const learner_place *p, size_t count)
{
    size_t wanted = p->batch * (size_t)p->size;
    char note[NOTE_TEXT];
    if (count >= wanted) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "--batch %zu on %d worker%s takes %zu %s a step, but there are only %zu%s",
                   p->batch, p->size, p->size == 1 ? "" : "s", wanted, t->batch_of, count, note_text(t, note));
}

task_split task_watched(const task *t)
{
    return t->has_validation ? TASK_VALIDATION : TASK_TEST;
}

task_split task_final(const task *t)
{
    return t->has_test ? TASK_TEST : TASK_VALIDATION;
}

const char *task_split_name(task_split split)
{
    return split == TASK_VALIDATION ? "validation" : "test";
}

const char *task_counts_text(size_t train, const size_t held[TASK_SPLITS], char text[TASK_COUNTS_TEXT])
{
    size_t validation = held[TASK_VALIDATION], test = held[TASK_TEST];
    if (validation && test)
        snprintf(text, TASK_COUNTS_TEXT, "%zu training, %zu validation and %zu test", train, validation, test);
    else
        snprintf(text, TASK_COUNTS_TEXT, "%zu training and %zu %s", train, validation ? validation : test,
                 validation ? "validation" : "test");
    return text;
}

bool learner_stops(const learner *l)
{
    return l->left || (l->stops && l->stops());
}

void task_score_add(task_score *sum, const task_score *score)
{
    sum->loss += score->loss;
    sum->count += score->count;
    for (int i = 0; i < TASK_PARTS; i++) sum->parts[i] += score->parts[i];
}

double task_metric_value(const task_metric *metric, const task_score *score)
{
    return metric->value ? metric->value(score) : score->parts[metric->part];
}

const char *task_metric_text(const task_metric *metric, const task_score *score, char text[TASK_METRIC_TEXT])
{
    double value = task_metric_value(metric, score);
    snprintf(text, TASK_METRIC_TEXT, metric->percent ? "%s %.2f %%" : "%s %.2f", metric->name,
             metric->percent ? 100 * value : value);
    return text;
}

const char *task_suit_of(const task_suit *suits, const char *option)
{
    while (suits->option && strcmp(suits->option, option) != 0) suits++;
    return suits->value;
}
