#include "frame_data.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "kaldi_table.h"

enum { FORGIVEN = 2, MOST_CLASSES = 1 << 20 };

static tw_status refuse_class(const char *path, const kaldi_entry *entry, const char *word)
{
    return tw_fail(TW_ERROR_FORMAT, "%s: line %zu: \"%.20s\" is not a class; they are numbers from 0 to %d", path,
                   entry->line, word, MOST_CLASSES - 1);
}

/* The classes of a line, for free(). The line is cut up. */
static tw_status parse_classes(const char *path, const kaldi_entry *entry, uint32_t **classes, size_t *count)
{
    char *rest = entry->value;
    uint32_t *parsed = malloc((strlen(rest) / 2 + 1) * sizeof *parsed);
    if (!parsed) return tw_fail(TW_ERROR_MEMORY, "%s: no memory for line %zu", path, entry->line);
    for (*count = 0; *rest; ++*count) {
        char *word = text_word(&rest), *end;
        unsigned long number = strtoul(word, &end, 10);
        if (*end || word[0] < '0' || word[0] > '9' || number >= MOST_CLASSES) {
            tw_status status = refuse_class(path, entry, word);
            free(parsed);
            return status;
        }
        parsed[*count] = (uint32_t)number;
    }
    *classes = parsed;
    return TW_OK;
}

/* Gives the item exactly one class a frame; false when there are too many or too few. */
static bool fit(speech_item *item, uint32_t *classes, size_t count)
{
    size_t frames = item->frames;
    if (count == 0 || count > frames + FORGIVEN || frames > count + FORGIVEN) return false;
    uint32_t *targets = realloc(classes, frames * sizeof *targets);
    if (!targets) return false;
    for (size_t t = count; t < frames; t++) targets[t] = targets[count - 1];
    item->targets = targets;
    item->target_count = frames;
    return true;
}

/* What the items of a set are aligned with. */
typedef struct aligner {
    const char *path;
    kaldi_table table;
    size_t known; /* classes; 0: those that are met */
    frame_set *set;
} aligner;

/* Counts an utterance as left out, which is no failure. */
static tw_status frame_data_leave_out(aligner *a, skip_reason reason, const char *id, const char *why, size_t number)
{
    char example[SKIP_EXAMPLE];
    snprintf(example, sizeof example, "%s: %s %zu", id, why, number);
    skips_add(&a->set->speech.skipped, reason, example);
    return TW_OK;
}

static size_t frame_data_largest(const uint32_t *classes, size_t count)
{
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++)
        if (classes[i] > most) most = classes[i];
    return most;
}

/* Takes over `classes`. */
static tw_status frame_data_take_classes(aligner *a, const char *id, uint32_t *classes, size_t count, speech_item *item)
{
    size_t most = frame_data_largest(classes, count);
    if (a->known && most >= a->known) {
        free(classes);
        return frame_data_leave_out(a, SKIP_ALIGNMENT, id, "training has no class", most);
    }
    if (!fit(item, classes, count)) {
        free(classes);
        return frame_data_leave_out(a, SKIP_ALIGNMENT, id, "frames are not as many as classes,", count);
    }
    if (most >= a->set->classes) a->set->classes = most + 1;
    return TW_OK;
}

/* The item has targets afterwards, or it is left out. */
static tw_status frame_data_align(aligner *a, const char *id, speech_item *item)
{
    uint32_t *classes = NULL;
    size_t count = 0;
    const kaldi_entry *entry = kaldi_table_find(&a->table, id);
    if (item->frames < a->set->length) return frame_data_leave_out(a, SKIP_TOO_SHORT, id, "frames", item->frames);
    if (!entry) return frame_data_leave_out(a, SKIP_ALIGNMENT, id, "not in the file; frames", item->frames);
    TW_TRY(parse_classes(a->path, entry, &classes, &count));
    return frame_data_take_classes(a, id, classes, count, item);
}

/* Keeps the items that have targets. */
static tw_status align_all(aligner *a, const speech_list *list)
{
    speech_set *speech = &a->set->speech;
    size_t all = speech->count, kept = 0;
    tw_status status = TW_OK;
    for (size_t i = 0; i < all; i++) {
        speech_item *item = &speech->items[i];
        if (status == TW_OK) status = frame_data_align(a, list->items[item->source].id, item);
        if (item->targets)
            speech->items[kept++] = *item;
        else
            speech_item_release(item);
    }
    speech->count = kept;
    return status == TW_OK ? speech_check_left(speech, list) : status;
}

static tw_status read_alignment(const char *path, const speech_list *list, size_t known, frame_set *set)
{
    aligner a = {.path = path, .known = known, .set = set};
    TW_TRY(kaldi_table_read(path, &a.table));
    tw_status status = align_all(&a, list);
    kaldi_table_release(&a.table);
    return status;
}

static size_t windows_of(size_t frames, size_t length)
{
    return (frames + length - 1) / length;
}

static tw_status cut_windows(frame_set *set)
{
    size_t total = 0;
    const speech_set *speech = &set->speech;
    for (size_t i = 0; i < speech->count; i++) total += windows_of(speech->items[i].frames, set->length);
    set->windows = malloc(total * sizeof *set->windows);
    if (!set->windows) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu windows", total);
    for (size_t i = 0; i < speech->count; i++) {
        size_t frames = speech->items[i].frames, last = frames - set->length;
        for (size_t first = 0; first < frames; first += set->length)
            set->windows[set->count++] = (frame_window){(uint32_t)i, (uint32_t)(first < last ? first : last)};
    }
    return TW_OK;
}

tw_status frame_load(const speech_list *list, const char *alignment, const speech_request *request, size_t length,
                     size_t classes, frame_set *set)
{
    *set = (frame_set){.length = length, .classes = classes};
    if (request->features.stride != 1 || length == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "classes are one a frame: features need stride=1, and windows a frame");
    TW_TRY(speech_load(list, NULL, request, &set->speech));
    tw_status status = read_alignment(alignment, list, classes, set);
    if (status == TW_OK) status = cut_windows(set);
    if (status != TW_OK) frame_release(set);
    return status;
}

void frame_release(frame_set *set)
{
    speech_release(&set->speech);
    free(set->windows);
    set->windows = NULL;
    set->count = 0;
}

/* The first frame of a window that no window before it has. */
static size_t first_own(const frame_set *set, const frame_window *window)
{
    return windows_of(window->first, set->length) * set->length;
}

void frame_fill(const frame_set *set, const uint32_t *order, size_t count, float *features, int32_t *targets)
{
    size_t width = set->speech.width;
    for (size_t i = 0; i < count; i++) {
        const frame_window *window = &set->windows[order[i]];
        const speech_item *item = &set->speech.items[window->item];
        size_t own = first_own(set, window);
        for (size_t t = 0; t < set->length; t++) {
            size_t frame = window->first + t;
            memcpy(features + (t * count + i) * width, item->rows + frame * width, width * sizeof *features);
            targets[t * count + i] = frame < own ? FRAME_NONE : (int32_t)item->targets[frame];
        }
    }
}
