#include "banner.h"
#include "progress.h"
#include <string.h>

static void shape_text(const tw_tensor *tensor, char *text, size_t capacity)
{
    size_t at = 0;
    text[0] = '\0';
    for (size_t d = 0; d < tensor->dims && at < capacity; d++)
        at += (size_t)snprintf(text + at, capacity - at, "%s%zu", d ? "x" : "", tensor->shape[d]);
}

/* One line for all biases and norms, of which deep networks have hundreds. */
static void print_vectors(FILE *stream, const worker *w)
{
    const tw_tensor *tensors = w->learner->tensors;
    const char *plan = NULL;
    size_t count = 0, elements = 0, alike = 0, dense = 0;
    for (size_t i = 0; i < w->learner->tensor_count; i++) {
        if (tensors[i].dims > 1) continue;
        const char *own = worker_plan(w, i);
        if (!plan) plan = own;
        count++;
        elements += tw_tensor_count(&tensors[i]);
        alike += strcmp(own, plan) == 0;
        dense += strncmp(own, "dense", strlen("dense")) == 0;
    }
    if (count == 0) return;
    fprintf(stream, "  %-4zu%-39s %10zu  ", count, "biases and norms", elements);
    if (alike == count)
        fprintf(stream, "%s\n", plan);
    else
        fprintf(stream, "%zu dense, %zu compressed\n", dense, count - dense);
}

static void print_tensors(FILE *stream, const worker *w)
{
    const tw_tensor *tensors = w->learner->tensors;
    for (size_t i = 0; i < w->learner->tensor_count; i++) {
        if (tensors[i].dims <= 1) continue;
        char shape[64];
        shape_text(&tensors[i], shape, sizeof shape);
        fprintf(stream, "  %-28s %-14s %10zu  %s\n", tensors[i].name, shape, tw_tensor_count(&tensors[i]),
                worker_plan(w, i));
    }
    print_vectors(stream, w);
}

void banner_print(FILE *stream, const worker *w)
{
    const train_settings *s = &w->settings;
    const learner *l = w->learner;
    char text[BYTES_TEXT];
    double dense = 8.0 * (w->size - 1) / w->size * (double)l->parameter_count;
    fprintf(stream, "thinwire %s (%s): %s on %s, %s\n", tw_version(), tw_isa(), l->model, w->task->path,
            w->task->description);
    fprintf(stream, "%zu parameters, %d worker%s over %s, --sync %s, momentum %g\n", l->parameter_count, w->size,
            w->size == 1 ? "" : "s", tw_comm_transport(w->comm), s->sync, s->momentum);
    if (*w->task->note) fprintf(stream, "%s\n", w->task->note);
    print_tensors(stream, w);
    fprintf(stream, "a dense fp32 step would send %s a worker; ", bytes_text(dense, text));
    fprintf(stream, "%llu steps of %d x %ld %s, %llu an epoch", (unsigned long long)w->steps, w->size, s->batch,
            w->task->batch_of, (unsigned long long)w->steps_per_epoch);
    if (w->step > 0) fprintf(stream, "; resumed after step %llu", (unsigned long long)w->step);
    fprintf(stream, "\n");
    if (w->gossips && w->size > 1)
        fprintf(stream,
                "each worker trains weights of its own; figures are rank 0's until all are averaged at the end\n");
    if (l->buffer_count > 0 && w->size > 1)
        fprintf(stream, "running statistics are each worker's own; evaluation uses their mean over the workers\n");
    fflush(stream);
}
