#include "banner.h"
#include "exchange.h"
#include "progress.h"
#include "scheme.h"
#include "seal.h"
#include "shape.h"
#include <string.h>

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

/* Matrices and kernels that are exchanged alike. */
typedef struct kind_of_tensors {
    const char *plan;
    size_t count, elements;
} kind_of_tensors;

enum { MATRICES_MOST = 24, KINDS_MOST = 16 };

static kind_of_tensors *find_kind(kind_of_tensors kinds[KINDS_MOST], const char *plan)
{
    size_t k = 0;
    while (k + 1 < KINDS_MOST && kinds[k].plan && strcmp(kinds[k].plan, plan) != 0) k++;
    if (!kinds[k].plan) kinds[k].plan = k + 1 < KINDS_MOST ? plan : "in other ways";
    return &kinds[k];
}

/* Of a deep network, of which a line each would fill pages: they are in metrics.jsonl. */
static void print_kinds(FILE *stream, const worker *w)
{
    const tw_tensor *tensors = w->learner->tensors;
    kind_of_tensors kinds[KINDS_MOST] = {0};
    for (size_t i = 0; i < w->learner->tensor_count; i++) {
        if (tensors[i].dims <= 1) continue;
        kind_of_tensors *kind = find_kind(kinds, worker_plan(w, i));
        kind->count++;
        kind->elements += tw_tensor_count(&tensors[i]);
    }
    for (const kind_of_tensors *k = kinds; k < kinds + KINDS_MOST && k->plan; k++)
        fprintf(stream, "  %-4zu%-39s %10zu  %s\n", k->count, "matrices and kernels", k->elements, k->plan);
}

static size_t count_matrices(const worker *w)
{
    size_t count = 0;
    for (size_t i = 0; i < w->learner->tensor_count; i++) count += w->learner->tensors[i].dims > 1;
    return count;
}

static void print_matrices(FILE *stream, const worker *w)
{
    const tw_tensor *tensors = w->learner->tensors;
    for (size_t i = 0; i < w->learner->tensor_count; i++) {
        if (tensors[i].dims <= 1) continue;
        char shape[SHAPE_TEXT];
        fprintf(stream, "  %-28s %-14s %10zu  %s\n", tensors[i].name,
                shape_text(tensors[i].dims, tensors[i].shape, shape), tw_tensor_count(&tensors[i]), worker_plan(w, i));
    }
}

static void print_tensors(FILE *stream, const worker *w)
{
    if (count_matrices(w) > MATRICES_MOST)
        print_kinds(stream, w);
    else
        print_matrices(stream, w);
    print_vectors(stream, w);
}

/* The option that makes the run longer, as it was told its length. */
static const char *length_option(const train_settings *s)
{
    return s->steps > 0 ? "--steps" : "--epochs";
}

/* Of a run that ends before it has begun in earnest, what it shows says little. */
static void print_warmups(FILE *stream, const worker *w)
{
    const train_settings *s = &w->settings;
    double steps = (double)w->steps, rises = (double)w->schedule.warmup, falls = w->scheme_warmup;
    int rate = steps <= rises, scheme = steps <= falls;
    if (!rate && !scheme) return;
    fprintf(stream, "the run is over before its warm-up is, which takes");
    if (rate) fprintf(stream, " %g steps of the learning rate (--warmup)", rises);
    if (scheme)
        fprintf(stream, "%s %g of %.*s (warmup_steps)", rate ? ", and" : "", falls, (int)strcspn(s->sync, ":"),
                s->sync);
    fprintf(stream, "; give more %s, or shorter warm-ups\n", length_option(s));
}

static void print_held(FILE *stream, const worker *w)
{
    if (w->task->held_steps == 0 || w->steps > w->task->held_steps) return;
    fprintf(stream, "the run ends before --freeze-steps does: the encoder does not learn; give more %s\n",
            length_option(&w->settings));
}

/* Adam divides what comes late by what is usual then. docs/pytorch.md has what that costs. */
static void print_lateness(FILE *stream, const worker *w)
{
    const train_settings *s = &w->settings;
    int is_adamw = s->optimizer == OPTIMISER_ADAMW, divides = is_adamw || s->optimizer == OPTIMISER_ADAM;
    if (!divides || !w->exchange->replicas || w->size == 1 || !scheme_sends_a_part(w->spec)) return;
    if (scheme_adapts(w->spec) || scheme_gives_signs(w->spec)) return;
    fprintf(stream,
            "%.*s sends most of a gradient many steps late, and Adam learns badly from that: take --sync "
            "%spowersgd:rank=16, qsgd or fp8\n",
            (int)strcspn(s->sync, ":"), s->sync, is_adamw ? "dgc-adam, " : "");
}

/* What is as it is for nobody's wish, and what SGD does without. */
static int goes_unsaid(const option_row *row, const char *value, const train_settings *s)
{
    return strcmp(value, row->fallback) == 0 || (row->beside && s->optimizer == OPTIMISER_SGD);
}

/* "--lr 0.03 --schedule step:3 ...": what tasks and models have defaults of their own for. */
static void print_rates(FILE *stream, const train_settings *s)
{
    static const char *const names[] = {"lr",    "schedule", "warmup",       "optimizer", "momentum",
                                        "beta2", "epsilon",  "weight-decay", "clip"};
    enum { ALWAYS = 5 };
    const option_page *page = s->set->page;
    char space[OPTION_TEXT_MOST];
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (size_t i = 0; i < page->count; i++) {
            const option_row *row = &page->rows[i];
            const char *value = row->name && strcmp(row->name, names[n]) == 0 ? options_value(row, s, space) : NULL;
            if (!value || (n >= ALWAYS && goes_unsaid(row, value, s))) continue;
            fprintf(stream, "%s--%s %s", n ? " " : "", names[n], value);
        }
    fputc('\n', stream);
}

static void print_memory(FILE *stream, const worker *w)
{
    pager_counts counts;
    char whole[BYTES_TEXT], budget[BYTES_TEXT];
    if (!w->settings.memory_budget) return;
    if (!w->pager) {
        fprintf(stream, "--memory-budget %s: all of the model and its state fits\n", w->settings.memory_budget);
        return;
    }
    pager_count(w->pager, &counts);
    fprintf(stream,
            "%s of the model and its state in a file in %s, at most %s of it in memory, in %zu groups of layers\n",
            bytes_text((double)counts.total, whole), pager_folder(w->pager), bytes_text((double)counts.budget, budget),
            counts.groups);
}

void banner_print(FILE *stream, const worker *w)
{
    const train_settings *s = &w->settings;
    const learner *l = w->learner;
    char text[BYTES_TEXT];
    double dense = 8.0 * (w->size - 1) / w->size * (double)l->parameter_count;
    fprintf(stream, "thinwire %s (%s): %s on %s, %s\n", tw_version(), tw_isa(), l->model, w->task->path,
            w->task->description);
    fprintf(stream, "%zu parameters", l->parameter_count);
    if (l->buffers_stand && l->buffer_count > 0) fprintf(stream, " and %zu frozen ones", l->buffer_count);
    fprintf(stream, ", %d worker%s over %s%s, --sync %s\n", w->size, w->size == 1 ? "" : "s",
            tw_comm_transport(w->comm), seal_describe(s, tw_comm_transport(w->comm)), s->sync);
    print_rates(stream, s);
    if (*w->task->note) fprintf(stream, "%s\n", w->task->note);
    print_memory(stream, w);
    if (s->pipeline) fprintf(stream, "one network in stages, --pipeline %s\n", s->pipeline);
    print_tensors(stream, w);
    if (!w->exchange->staged && w->size > 1)
        fprintf(stream, "a dense fp32 step would send %s a worker; ", bytes_text(dense, text));
    const unsigned long long batches = l->steps_per_epoch / w->steps_per_epoch * (uint64_t)l->place.size;
    fprintf(stream, "%llu steps of %llu x %ld %s, %llu an epoch", (unsigned long long)w->steps, batches, s->batch,
            w->task->batch_of, (unsigned long long)w->steps_per_epoch);
    if (strcmp(w->spec, s->sync) != 0) fprintf(stream, ", with --sync %s", w->spec);
    if (w->step > 0) fprintf(stream, "; resumed after step %llu", (unsigned long long)w->step);
    fprintf(stream, "\n");
    if (!w->exchange->replicas && !w->exchange->side_by_side && w->size > 1)
        fprintf(stream,
                "each worker trains weights of its own; figures are rank 0's until all are averaged at the end\n");
    if (l->buffer_count > 0 && !l->buffers_stand && l->place.size > 1)
        fprintf(stream, "running statistics are each worker's own; evaluation uses their mean over the workers\n");
    print_warmups(stream, w);
    print_held(stream, w);
    print_lateness(stream, w);
    fflush(stream);
}
