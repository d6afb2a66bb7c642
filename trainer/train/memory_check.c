#include "memory_check.h"
#include "error.h"
#include "optimiser.h"
#include "share.h"
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

static double limit_of_addresses(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? (double)limit.rlim_cur : INFINITY;
}

/* What Linux could give without paging; infinite where it does not say. */
static double memory_available(void)
{
    double kibibytes = INFINITY;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lf kB", &kibibytes) == 1) break;
    if (file) fclose(file);
    return kibibytes * 1024;
}

/* Weights, gradients, the exchange's copy of them and the optimiser's moments; and what a forward pass leaves. */
static double bytes_of_worker(const train_settings *settings, const task_sizes *sizes)
{
    const double moments = settings->optimizer == OPTIMISER_SGD ? 1 : 2;
    return sizeof(float) * ((3 + moments) * sizes->parameters + sizes->activations);
}

tw_status memory_check(const train_settings *settings, int workers)
{
    task_sizes sizes;
    if (!settings->task->sizes || settings->memory_budget) return TW_OK;
    TW_TRY(settings->task->sizes(settings->own, (size_t)settings->batch, &sizes));
    const double ranks = (double)share_ranks(), all = workers * ranks;
    const double needed = all * bytes_of_worker(settings, &sizes),
                 there = fmin(memory_available(), ranks * limit_of_addresses());
    if (needed <= there) return TW_OK;
    return tw_fail(TW_ERROR_MEMORY,
                   "%.0f worker%s of this size take%s %.2f GiB or more for weights, gradients, the optimiser and a "
                   "step of --batch %ld, and %.2f GiB are there; a smaller --batch, %s",
                   all, all == 1 ? "" : "s", all == 1 ? "s" : "", needed / 0x1p30, settings->batch, there / 0x1p30,
                   sizes.smaller);
}
