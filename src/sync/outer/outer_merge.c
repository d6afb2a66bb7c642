/* merge=rda: of each tensor directions and lengths are averaged apart (radial-directional averaging, of Decoupled
 * DiLoCo, arXiv 2604.21428; reconstructed from the public program yeto). With the workers' parts v and their weights w,
 * which add up to W:
 *     L = sum of w |v| / W,    u = sum of w v / |v| / W,    D = L * u / |u|
 * A mean of parts that point apart is short: this one is as long as they are. Each part goes into the exchange as
 * L * v / |v|, so that what a scheme holds back is as long as what goes in. Where directions cancel to nothing, nothing
 * moves: what rounding leaves of them is no direction, nor has a part one that is nothing beside the others. */
#include "channel.h"
#include "error.h"
#include "kernels.h"
#include "outer.h"

#include <float.h>
#include <math.h>

#define SHORTEST 1e-30 /* beside the mean length: what is shorter has no direction */

static float *outer_merge_part_of(const tw_outer *outer, size_t tensor, size_t *count)
{
    *count = outer->places[tensor + 1] - outer->places[tensor];
    return outer->delta + outer->places[tensor];
}

static double outer_merge_length_of(const tw_outer *outer, size_t tensor)
{
    size_t count;
    const float *part = outer_merge_part_of(outer, tensor, &count);
    return sqrt(tw_kernels_best()->sum_squares(part, count));
}

/* To the mean length; to nothing, if it is not longer than so many times that. */
static void stretch(const tw_outer *outer, size_t tensor, double length, double least)
{
    size_t count;
    float *part = outer_merge_part_of(outer, tensor, &count);
    double mean = outer->lengths[tensor];
    tw_kernels_best()->scale(part, length > least * mean ? (float)(mean / length) : 0, count);
}

/* What others say is not trusted. */
static tw_status add_lengths(tw_outer *outer, int rank, const double *lengths, double weights)
{
    const tw_fragment *fragment = tw_outer_current(outer);
    for (size_t i = 0; i < fragment->count; i++) {
        if (!(lengths[i] >= 0 && lengths[i] <= TW_FARTHEST))
            return tw_fail(TW_ERROR_PACKET, "rank %d says that its part of %s is %g long, which cannot be", rank,
                           outer->tensors[fragment->first + i].name, lengths[i]);
        outer->lengths[fragment->first + i] += outer->words[rank].weight / weights * lengths[i];
    }
    return TW_OK;
}

static tw_status exchange_lengths(tw_outer *outer, double weights, double *own)
{
    const tw_fragment *fragment = tw_outer_current(outer);
    double *all = own + fragment->count;
    for (size_t i = 0; i < fragment->count; i++) {
        own[i] = outer->given > 0 ? outer_merge_length_of(outer, fragment->first + i) : 0;
        outer->lengths[fragment->first + i] = 0;
    }
    TW_TRY(tw_channel_gather_into(outer->channel, own, fragment->count * sizeof *own, (unsigned char *)all));
    for (int r = 0; r < outer->size; r++) TW_TRY(add_lengths(outer, r, all + (size_t)r * fragment->count, weights));
    return TW_OK;
}

tw_status tw_outer_give_directions(tw_outer *outer, double weights)
{
    const tw_fragment *fragment = tw_outer_current(outer);
    double *own = outer->lengths + outer->count;
    TW_TRY(exchange_lengths(outer, weights, own));
    for (size_t i = 0; outer->given > 0 && i < fragment->count; i++)
        stretch(outer, fragment->first + i, own[i], SHORTEST);
    return TW_OK;
}

void tw_outer_take_directions(const tw_outer *outer)
{
    const tw_fragment *fragment = tw_outer_current(outer);
    double rounding = (outer->size + 4) * (double)FLT_EPSILON; /* of the parts and their sum, beside their length */
    for (size_t i = fragment->first; i < fragment->first + fragment->count; i++)
        stretch(outer, i, outer_merge_length_of(outer, i), rounding);
}
