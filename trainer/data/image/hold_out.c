/* Which images of a training set are held out to validate with: a share of each class, drawn by a generator whose seed
 * is always the same. So the choice depends on the data and the share alone, not on --seed, workers or machines. */
#include "hold_out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "format.h"
#include "shuffle.h"

/* The same in every run. */
static const uint64_t split_seed = 0x73706c6974;

size_t hold_out_of(size_t count, double share)
{
    size_t held = (size_t)floor(share * (double)count + 0.5);
    if (held == 0) held = 1;
    return held < count ? held : count - 1;
}

void hold_out_order(uint32_t *order, size_t count, size_t label)
{
    data_shuffle(order, count, split_seed, label);
}

/* Marks a share of one class, whose images have the places members[0 .. count). */
static void mark_class(const uint32_t *members, uint32_t *order, size_t count, double share, size_t label, bool *held)
{
    size_t wanted = count ? hold_out_of(count, share) : 0;
    hold_out_order(order, count, label);
    for (size_t i = 0; i < wanted; i++) held[members[order[i]]] = true;
}

static void mark_all(const image_set *set, double share, uint32_t *members, uint32_t *order, bool *held)
{
    for (size_t label = 0; label < set->classes; label++) {
        size_t count = 0;
        for (size_t i = 0; i < set->count; i++)
            if (set->labels[i] == label) members[count++] = (uint32_t)i;
        mark_class(members, order, count, share, label, held);
    }
}

static size_t count_marks(const bool *held, size_t count)
{
    size_t marks = 0;
    for (size_t i = 0; i < count; i++) marks += held[i];
    return marks;
}

/* Both keep their order. */
static void move_marked(image_set *from, image_set *to, const bool *held)
{
    size_t size = from->channels * from->height * from->width, kept = 0;
    for (size_t i = 0; i < from->count; i++) {
        image_set *set = held[i] ? to : from;
        size_t at = held[i] ? to->count++ : kept++;
        memmove(set->pixels + at * size, from->pixels + i * size, size);
        set->labels[at] = from->labels[i];
    }
    from->count = kept;
}

static tw_status move_held(dataset *data, const bool *held)
{
    image_set *from = &data->train, *to = &data->valid;
    size_t count = count_marks(held, from->count), size = from->channels * from->height * from->width;
    *to = *from;
    to->count = 0;
    to->pixels = malloc(count * size);
    to->labels = malloc(count * sizeof *to->labels);
    if (!to->pixels || !to->labels) return tw_fail(TW_ERROR_MEMORY, "no memory to hold out %zu images", count);
    move_marked(from, to, held);
    return TW_OK;
}

tw_status hold_out(dataset *data, double share)
{
    size_t count = data->train.count;
    uint32_t *members = malloc(count * sizeof *members), *order = malloc(count * sizeof *order);
    bool *held = calloc(count, sizeof *held);
    tw_status status = TW_OK;
    if (!members || !order || !held) status = tw_fail(TW_ERROR_MEMORY, "no memory to choose out of %zu images", count);
    if (status == TW_OK) mark_all(&data->train, share, members, order, held);
    if (status == TW_OK && count_marks(held, count) == 0)
        status = tw_fail(TW_ERROR_ARGUMENT, "%s: no class has two training images, so --validation can hold none out",
                         data->path);
    if (status == TW_OK) status = move_held(data, held);
    free(members);
    free(order);
    free(held);
    return status;
}
