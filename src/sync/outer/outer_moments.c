/* first_moment=N and second_moment=N: in every N-th round of its tensors the inner optimiser's moments become the
 * workers' mean, as the weights do in each (DES-LOC; Iacob et al. 2025, arXiv 2505.22549). They are summed exactly and
 * without a scheme: what is held back of a second moment would be no second moment. */
#include "channel.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "outer.h"

#include <string.h>

static const char *const moment_names[TW_MOMENTS] = {"first_moment", "second_moment"};

static tw_status copy_list(const tw_outer *outer, int moment, float *const *shown, float ***list)
{
    if (!shown) return TW_OK;
    TW_TRY(tw_outer_check_arrays(outer, shown, moment_names[moment]));
    TW_TRY(tw_allocate(outer->count, sizeof **list, list));
    memcpy(*list, shown, outer->count * sizeof *shown);
    return TW_OK;
}

tw_status tw_outer_show_moments(tw_outer *outer, float *const *first, float *const *second)
{
    float **lists[TW_MOMENTS] = {NULL};
    TW_TRY(tw_outer_need(outer));
    if (outer->begun) return tw_fail(TW_ERROR_ORDER, "moments are shown before tw_outer_begin");
    tw_status status = copy_list(outer, 0, first, &lists[0]);
    if (status == TW_OK) status = copy_list(outer, 1, second, &lists[1]);
    for (int moment = 0; moment < TW_MOMENTS; moment++) {
        float **useless = status == TW_OK ? outer->moments[moment] : lists[moment];
        if (status == TW_OK) outer->moments[moment] = lists[moment];
        tw_free(useless);
    }
    return status;
}

tw_status tw_outer_check_moments(const tw_outer *outer)
{
    for (int moment = 0; moment < TW_MOMENTS; moment++)
        if (outer->options.moments[moment] > 0 && !outer->moments[moment])
            return tw_fail(TW_ERROR_ARGUMENT,
                           "%s: %s=%lld, and tw_outer_show_moments has shown none; write %s=0, or take an optimiser "
                           "that has them",
                           outer->method->name, moment_names[moment], (long long)outer->options.moments[moment],
                           moment_names[moment]);
    return TW_OK;
}

static int is_averaged(const tw_outer *outer, int moment)
{
    uint64_t period = (uint64_t)outer->options.moments[moment], turn = outer->round / outer->fragment_count + 1;
    return period > 0 && turn % period == 0;
}

/* This rank's share of the mean; of one that gives nothing, nothing. */
static void share_moments(const tw_outer *outer, float *const *own)
{
    const tw_fragment *fragment = tw_outer_current(outer);
    float share = outer->given > 0 ? outer->shares[outer->rank] / (float)outer->size : 0;
    memset(outer->delta + fragment->start, 0, fragment->elements * sizeof *outer->delta);
    for (size_t i = fragment->first; share > 0 && i < fragment->first + fragment->count; i++) {
        float *part = outer->delta + outer->places[i];
        for (size_t j = 0; j < outer->places[i + 1] - outer->places[i]; j++) part[j] = share * own[i][j];
    }
}

static tw_status average_moments(tw_outer *outer, int moment)
{
    const tw_fragment *fragment = tw_outer_current(outer);
    float *sum = outer->delta + fragment->start; /* whose D has been taken */
    share_moments(outer, outer->moments[moment]);
    TW_TRY(tw_channel_allreduce(outer->channel, TW_F32, sum, fragment->elements));
    if (!tw_kernels_best()->all_finite(sum, fragment->elements)) {
        if (outer->rank == 0)
            tw_log(TW_LOG_WARNING, "%s=%lld in round %llu of %s: they stay each worker's own, as some are not finite",
                   moment_names[moment], (long long)outer->options.moments[moment], (unsigned long long)outer->round,
                   outer->method->name);
        return TW_OK;
    }
    for (size_t i = fragment->first; i < fragment->first + fragment->count; i++)
        memcpy(outer->moments[moment][i], outer->delta + outer->places[i],
               (outer->places[i + 1] - outer->places[i]) * sizeof *sum);
    return TW_OK;
}

tw_status tw_outer_average_moments(tw_outer *outer)
{
    for (int moment = 0; moment < TW_MOMENTS; moment++)
        if (is_averaged(outer, moment)) TW_TRY(average_moments(outer, moment));
    return TW_OK;
}
