#include "speech_batch.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "shuffle.h"
#include "tempo.h"

/* An utterance on its way into its place: by size first, equals as they were shuffled. */
typedef struct sort_key {
    size_t size;
    uint32_t place, index;
} sort_key;

static int by_size(const void *a, const void *b)
{
    const sort_key *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Lengths whose four highest bits agree count as equal: they differ by less than an eighth. */
static size_t bucket(size_t frames)
{
    int shift = 0;
    while (frames >> shift >= 16) shift++;
    return frames >> shift << shift;
}

static void sort_by_size(const speech_set *set, bool exact, sort_key *keys, size_t count, uint32_t *order)
{
    for (size_t i = 0; i < count; i++) {
        size_t frames = set->items[order[i]].frames;
        keys[i] = (sort_key){exact ? frames : bucket(frames), (uint32_t)i, order[i]};
    }
    qsort(keys, count, sizeof *keys, by_size);
    for (size_t i = 0; i < count; i++) order[i] = keys[i].index;
}

size_t speech_steps(const speech_set *set, size_t ranks, size_t batch)
{
    return set->count / (ranks * batch);
}

/* Step s of the epoch is group steps[s] of the sorted keys, dealt out to the workers like cards. */
static void deal(const sort_key *keys, const uint32_t *steps, size_t count, size_t ranks, size_t batch, uint32_t *order)
{
    size_t global = ranks * batch;
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < global; i++)
            order[s * global + i % ranks * batch + i / ranks] = keys[steps[s] * global + i].index;
}

tw_status speech_order(const speech_set *set, size_t ranks, size_t batch, uint64_t seed, uint64_t epoch, bool sorted,
                       uint32_t *order)
{
    size_t steps = speech_steps(set, ranks, batch), kept = steps * ranks * batch;
    if (steps == 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "%zu utterances are fewer than the %zu x %zu that a step of all workers takes", set->count,
                       ranks, batch);
    sort_key *keys = malloc(kept * sizeof *keys);
    uint32_t *step_order = malloc(steps * sizeof *step_order);
    tw_status status = TW_OK;
    if (keys && step_order) {
        data_shuffle(order, set->count, seed, epoch);
        sort_by_size(set, sorted, keys, kept, order);
        data_shuffle(step_order, steps, ~seed, epoch); /* another seed: draws of their own */
        for (size_t s = 0; sorted && s < steps; s++) step_order[s] = (uint32_t)s;
        deal(keys, step_order, steps, ranks, batch, order);
    } else
        status = tw_fail(TW_ERROR_MEMORY, "no memory for the order of %zu utterances", kept);
    free(keys);
    free(step_order);
    return status;
}

tw_status speech_order_by_length(const speech_set *set, uint32_t *order)
{
    sort_key *keys = malloc(set->count * sizeof *keys);
    if (!keys) return tw_fail(TW_ERROR_MEMORY, "no memory for the order of %zu utterances", set->count);
    for (size_t i = 0; i < set->count; i++) order[i] = (uint32_t)i;
    sort_by_size(set, true, keys, set->count, order);
    free(keys);
    return TW_OK;
}

/* Makes room for `needed` elements of `size` bytes; what was there is lost. */
static tw_status speech_batch_make_room(void *buffer, size_t *capacity, size_t needed, size_t size)
{
    void **place = buffer;
    if (needed <= *capacity) return TW_OK;
    void *fresh = malloc(needed * size);
    if (!fresh) return tw_fail(TW_ERROR_MEMORY, "no memory for a batch of %zu MiB", needed * size >> 20);
    free(*place);
    *place = fresh;
    *capacity = needed;
    return TW_OK;
}

/* What is drawn for an utterance. */
typedef struct variation {
    const spec_augmentation *augment; /* NULL: nothing is */
    uint64_t seed, epoch;
} variation;

/* No tempo is too fast for CTC to follow. */
static size_t frames_of(const speech_set *set, const speech_item *item, const variation *v)
{
    if (!v->augment || v->augment->tempo == 0) return item->frames;
    size_t least = speech_least_frames(item->targets, item->target_count, set->frames_a_row);
    size_t frames = tempo_frames(v->augment->tempo, v->seed, v->epoch, (uint32_t)item->source, item->frames);
    return frames > least ? frames : least;
}

/* Everything is as large as this batch needs it, and the features are 0. */
static tw_status speech_batch_prepare(const speech_set *set, const uint32_t *order, size_t count, const variation *v,
                                      speech_batch *b)
{
    size_t targets = 0;
    b->count = count;
    b->width = set->width;
    b->time = 0;
    TW_TRY(speech_batch_make_room(&b->lengths, &b->length_capacity, count, sizeof *b->lengths));
    for (size_t i = 0; i < count; i++) {
        const speech_item *item = &set->items[order[i]];
        b->lengths[i] = (uint32_t)frames_of(set, item, v);
        if (b->lengths[i] > b->time) b->time = b->lengths[i];
        targets += item->target_count;
    }
    size_t values = b->time * count * set->width;
    TW_TRY(speech_batch_make_room(&b->features, &b->feature_capacity, values, sizeof *b->features));
    TW_TRY(speech_batch_make_room(&b->rows, &b->row_capacity, b->time * set->width, sizeof *b->rows));
    TW_TRY(speech_batch_make_room(&b->targets, &b->target_capacity, targets, sizeof *b->targets));
    TW_TRY(speech_batch_make_room(&b->target_counts, &b->target_count_capacity, count, sizeof *b->target_counts));
    memset(b->features, 0, values * sizeof *b->features);
    return TW_OK;
}

/* Column `i` of the batch: time is the outer dimension there. */
static void copy_rows(const float *rows, size_t frames, size_t i, speech_batch *batch)
{
    for (size_t t = 0; t < frames; t++)
        memcpy(batch->features + (t * batch->count + i) * batch->width, rows + t * batch->width,
               batch->width * sizeof *rows);
}

/* An utterance's rows as they are, or varied. */
static const float *vary(const speech_set *set, const speech_item *item, const variation *v, size_t frames,
                         speech_batch *batch)
{
    if (!v->augment) return item->rows;
    tempo_change(item->rows, item->frames, set->width, batch->rows, frames);
    spec_augment(v->augment, &set->features, v->seed, v->epoch, (uint32_t)item->source, batch->rows, frames);
    return batch->rows;
}

tw_status speech_fill(const speech_set *set, const uint32_t *order, size_t count, const spec_augmentation *augment,
                      uint64_t seed, uint64_t epoch, speech_batch *batch)
{
    const variation v = {augment, seed, epoch};
    TW_TRY(speech_batch_prepare(set, order, count, &v, batch));
    uint32_t *targets = batch->targets;
    for (size_t i = 0; i < count; i++) {
        const speech_item *item = &set->items[order[i]];
        size_t frames = batch->lengths[i];
        copy_rows(vary(set, item, &v, frames, batch), frames, i, batch);
        batch->target_counts[i] = (uint32_t)item->target_count;
        for (size_t k = 0; k < item->target_count; k++) *targets++ = item->targets[k];
    }
    return TW_OK;
}

void speech_batch_release(speech_batch *batch)
{
    free(batch->features);
    free(batch->lengths);
    free(batch->targets);
    free(batch->target_counts);
    free(batch->rows);
    *batch = (speech_batch){0};
}
