/* exchange_paged.c - what goes with --memory-budget, and what is paged. */
#include "exchange_paged.h"
#include "error.h"
#include "file_memory.h"
#include "pages.h"
#include <stdlib.h>
#include <string.h>

/* ---- the budget ---- */

/* "200MB" as bytes. */
static tw_status paged_parse(const char *text, size_t *bytes)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
    char *end;
    double number = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        double all = number * units[i].bytes;
        if (strcmp(end, units[i].name) != 0 || end == text || !(all >= 1 && all < 0x1p62)) continue;
        *bytes = (size_t)all;
        return TW_OK;
    }
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--memory-budget %s: it is a number and kB, MB, GB, KiB, MiB or GiB, such as 200MB", text);
}

static tw_status check_company(const worker *w)
{
    const train_settings *s = &w->settings;
    if (s->optimizer == OPTIMISER_MUON)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--memory-budget takes a step in parts, and --optimizer muon needs whole matrices; write "
                       "--optimizer adamw, or leave --memory-budget out");
    if (s->dump_gradients)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--dump-gradients keeps whole gradients in memory: leave out either it or --memory-budget");
    if (w->exchange->side_by_side) return paged_check_rounds(s->sync);
    if (strcmp(s->sync, "allreduce") != 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--memory-budget goes with --sync local and diloco, or with allreduce and one worker, without "
                       "options, and not with %s",
                       s->sync);
    if (w->size > 1)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--memory-budget: %d workers would exchange gradients as a whole; write --sync diloco:every=30 "
                       "or local:every=30, or train with --workers 1",
                       w->size);
    return TW_OK;
}

static tw_status agree_on(void *context, void *data, size_t bytes)
{
    const worker *w = context;
    return tw_comm_broadcast(w->comm, 0, data, bytes);
}

tw_status paged_open(worker *w)
{
    const train_settings *s = &w->settings;
    pager_options paging = {.states = s->optimizer == OPTIMISER_SGD ? 1 : 2,
                            .shared = w->exchange->side_by_side ? PAGER_SHARED : 0,
                            .folder = s->out && *s->out ? s->out : ".",
                            .agree = w->size > 1 ? agree_on : NULL,
                            .context = w};
    TW_TRY(paged_parse(s->memory_budget, &paging.budget));
    TW_TRY(check_company(w));
    return pager_create(&paging, &w->pager);
}

tw_status paged_choose(worker *w)
{
    pager_counts counts;
    pager_count(w->pager, &counts);
    if (counts.total == 0)
        return tw_fail(TW_ERROR_UNSUPPORTED, "--memory-budget: task %s has all of its network in memory; leave it out",
                       w->task->ops->name);
    if (!pager_is_needed(w->pager)) {
        pager_destroy(w->pager);
        w->pager = w->learner->place.pager = NULL;
        return TW_OK;
    }
    file_memory_use(pager_folder(w->pager));
    free(w->way);
    w->exchange = w->exchange->side_by_side ? &paged_rounds_exchange : &paged_exchange;
    w->way = calloc(1, w->exchange->bytes);
    return w->way ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for a worker");
}

/* ---- what is paged ---- */

static tw_status paged_update(void *context, size_t begin, size_t end, int todo)
{
    if (todo & PAGER_TAKE) TW_TRY(paged_take(context, begin, end));
    return todo & PAGER_MEET ? paged_meet(context, begin, end) : TW_OK;
}

static tw_status take_shared(paged_way *way, size_t count)
{
    for (size_t i = 0; i < PAGER_SHARED; i++)
        if (!(way->shared[i] = pages_take(count)))
            return tw_fail(TW_ERROR_MEMORY, "no memory for what %zu parameters share", count);
    return TW_OK;
}

tw_status paged_attach(worker *w)
{
    paged_way *way = paged_way_of(w);
    learner *l = w->learner;
    float *arrays[OPTIMISER_BUFFERS + PAGER_SHARED] = {0}, *shown[PAGER_STATES];
    way->parameters = l->parameters;
    way->gradients = l->gradients;
    way->squares = calloc(l->tensor_count, sizeof *way->squares);
    if (!way->squares) return tw_fail(TW_ERROR_MEMORY, "no memory for the norms of %zu tensors", l->tensor_count);
    size_t count = optimiser_arrays(w->optimiser, arrays);
    if (w->exchange->side_by_side) TW_TRY(take_shared(way, l->parameter_count));
    memcpy(arrays + count, way->shared, sizeof way->shared);
    TW_TRY(pager_attach(w->pager, arrays, paged_update, w));
    for (size_t i = 0; i < count; i++) shown[i] = pager_state(w->pager, i);
    optimiser_show(w->optimiser, shown);
    l->parameters = pager_values(w->pager);
    return TW_OK;
}
