#include "speech_crops.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "shuffle.h"

/* An item and whose it is. */
typedef struct spoken {
    const char *speaker;
    uint32_t item;
} spoken;

static int by_speaker(const void *a, const void *b)
{
    const spoken *x = a, *y = b;
    int order = strcmp(x->speaker, y->speaker);
    return order ? order : x->item < y->item ? -1 : x->item > y->item;
}

/* Numbers the speakers, and counts each one's items into first_item[speaker + 1]. */
static void number_speakers(const spoken *all, speech_crops *c)
{
    for (size_t i = 0; i < c->set->count; i++) {
        if (i == 0 || strcmp(all[i].speaker, all[i - 1].speaker) != 0) c->speakers++;
        c->speaker[all[i].item] = (uint32_t)(c->speakers - 1);
        c->first_item[c->speakers]++;
    }
}

/* Counts become where each begins. Returns the most frames that one speaker has. */
static size_t count_crops(speech_crops *c)
{
    size_t longest = 0, crop = c->frames > 0 ? c->frames : 1;
    size_t *frames = c->first_crop + 1;
    for (size_t i = 0; i < c->set->count; i++) frames[c->speaker[i]] += c->set->items[i].frames;
    for (size_t s = 0; s < c->speakers; s++) {
        if (frames[s] > longest) longest = frames[s];
        c->short_speakers += frames[s] < crop;
        c->first_item[s + 1] += c->first_item[s];
        c->first_crop[s + 1] = c->first_crop[s] + frames[s] / crop;
    }
    c->count = c->first_crop[c->speakers];
    return longest;
}

static double seconds_of(const speech_crops *c, size_t frames)
{
    const feature_settings *f = &c->set->features;
    return (double)frames * f->hop_ms * f->stride / 1000;
}

static tw_status find(const speech_list *list, const char *option, speech_crops *c)
{
    char hint[SPEECH_LIST_HINT];
    size_t count = c->set->count;
    c->speaker = calloc(count + 1, sizeof *c->speaker);
    c->first_item = calloc(count + 2, sizeof *c->first_item);
    c->first_crop = calloc(count + 2, sizeof *c->first_crop);
    spoken *all = calloc(count + 1, sizeof *all);
    if (!c->speaker || !c->first_item || !c->first_crop || !all) {
        free(all);
        return tw_fail(TW_ERROR_MEMORY, "no memory for the crops of %zu sounds", count);
    }
    for (size_t i = 0; i < count; i++) all[i] = (spoken){list->items[c->set->items[i].source].speaker, (uint32_t)i};
    qsort(all, count, sizeof *all, by_speaker);
    number_speakers(all, c);
    free(all);
    size_t longest = count_crops(c);
    if (c->count > 0) return TW_OK;
    return tw_fail(
        TW_ERROR_ARGUMENT,
        "none of %zu %s speakers has a whole crop of %.3g s: the longest has %.3g s in all; a shorter %s, or "
        "more speech%s",
        c->speakers, list->part, seconds_of(c, c->frames), seconds_of(c, longest), option,
        speech_list_hint(list, hint));
}

tw_status speech_crops_find(const speech_set *set, const speech_list *list, size_t frames, const char *option,
                            speech_crops *crops)
{
    *crops = (speech_crops){.set = set, .frames = frames};
    if (frames == 0) return tw_fail(TW_ERROR_ARGUMENT, "%s is shorter than a frame", option);
    tw_status status = find(list, option, crops);
    if (status != TW_OK) speech_crops_release(crops);
    return status;
}

void speech_crops_release(speech_crops *c)
{
    free(c->speaker);
    free(c->first_item);
    free(c->first_crop);
    *c = (speech_crops){0};
}

tw_status crop_order_create(const speech_crops *c, crop_order *order)
{
    *order = (crop_order){.items = malloc((c->set->count + 1) * sizeof *order->items),
                          .crops = malloc((c->count + 1) * sizeof *order->crops),
                          .shuffled = malloc((c->set->count + 1) * sizeof *order->shuffled),
                          .filled = malloc((c->speakers + 1) * sizeof *order->filled)};
    if (order->items && order->crops && order->shuffled && order->filled) return TW_OK;
    return tw_fail(TW_ERROR_MEMORY, "no memory for the order of %zu crops", c->count);
}

void crop_order_release(crop_order *order)
{
    free(order->items);
    free(order->crops);
    free(order->shuffled);
    free(order->filled);
    *order = (crop_order){0};
}

/* Brings each speaker's items together, in the order in which they come. `shuffled` NULL: that of the corpus. */
static void speech_crops_gather(const speech_crops *c, const uint32_t *shuffled, crop_order *order)
{
    memcpy(order->filled, c->first_item, c->speakers * sizeof *order->filled);
    for (size_t i = 0; i < c->set->count; i++) {
        uint32_t item = shuffled ? shuffled[i] : (uint32_t)i;
        order->items[order->filled[c->speaker[item]]++] = item;
    }
}

void crop_order_plain(const speech_crops *c, crop_order *order)
{
    speech_crops_gather(c, NULL, order);
    for (size_t i = 0; i < c->count; i++) order->crops[i] = (uint32_t)i;
}

void crop_order_shuffle(const speech_crops *c, uint64_t seed, uint64_t epoch, crop_order *order)
{
    data_shuffle(order->shuffled, c->set->count, seed, epoch);
    speech_crops_gather(c, order->shuffled, order);
    data_shuffle(order->crops, c->count, ~seed, epoch); /* another seed: draws of their own */
}

/* The last speaker whose crops begin at or before it. */
static size_t speech_crops_whose(const speech_crops *c, size_t crop)
{
    size_t low = 0, high = c->speakers;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (c->first_crop[middle] <= crop)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void speech_crops_copy(const speech_crops *c, const crop_order *order, size_t at, float *rows)
{
    size_t crop = order->crops[at], speaker = speech_crops_whose(c, crop), width = c->set->width, left = c->frames;
    size_t skipped = (crop - c->first_crop[speaker]) * c->frames;
    const uint32_t *item = order->items + c->first_item[speaker];
    for (; left > 0; item++) {
        const speech_item *one = &c->set->items[*item];
        size_t begin = skipped < one->frames ? skipped : one->frames;
        size_t taken = one->frames - begin < left ? one->frames - begin : left;
        memcpy(rows, one->rows + begin * width, taken * width * sizeof *rows);
        rows += taken * width;
        left -= taken;
        skipped -= begin;
    }
}
