#include "speech_data.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "log_mel.h"

/* What loading takes with it, and the utterance it is at. */
typedef struct loader {
    const alphabet *letters;
    const speech_request *request;
    log_mel *extractor;
    speech_set *set;
    const speech_utterance *one;
    speech_item item; /* what becomes of it */
    bool usable;      /* false: it is left out */
} loader;

/* Normalised, for free(). */
static tw_status normalised(const speech_utterance *one, char **transcript)
{
    *transcript = malloc(transcript_capacity(one->text));
    if (!*transcript) return tw_fail(TW_ERROR_MEMORY, "%s: no memory for its transcript", one->id);
    tw_status status = transcript_normalise(one->text, *transcript);
    if (status != TW_OK) free(*transcript);
    return status;
}

tw_status speech_alphabet(const speech_list *list, alphabet *letters)
{
    for (size_t i = 0; i < list->count; i++) {
        char *transcript;
        const speech_utterance *one = &list->items[i];
        if (!one->text || one->fault) continue;
        TW_TRY(normalised(one, &transcript));
        tw_status status = alphabet_add(letters, transcript);
        free(transcript);
        TW_TRY(status);
    }
    return TW_OK;
}

size_t speech_least_frames(const uint32_t *targets, size_t count, size_t a_row)
{
    size_t rows = count;
    for (size_t i = 1; i < count; i++) rows += targets[i] == targets[i - 1];
    return rows > 0 && a_row > 1 ? (rows - 1) * a_row + 1 : rows;
}

void speech_item_release(speech_item *item)
{
    free(item->targets);
    *item = (speech_item){0};
}

/* Counts the utterance as left out, which is no failure. */
static tw_status speech_data_leave_out(loader *l, skip_reason reason, const char *example)
{
    skips_add(&l->set->skipped, reason, example);
    l->usable = false;
    return TW_OK;
}

static tw_status speech_data_encode(loader *l, const char *transcript)
{
    char example[SKIP_EXAMPLE];
    speech_item *item = &l->item;
    item->targets = malloc((strlen(transcript) + 1) * sizeof *item->targets);
    if (!item->targets) return tw_fail(TW_ERROR_MEMORY, "%s: no memory for its transcript", l->one->id);
    if (alphabet_encode(l->letters, transcript, item->targets, &item->target_count) == TW_OK) return TW_OK;
    snprintf(example, sizeof example, "%s: %s", l->one->id, tw_last_error());
    return speech_data_leave_out(l, SKIP_CHARACTERS, example);
}

static tw_status read_targets(loader *l)
{
    char *transcript;
    if (!l->letters) return TW_OK;
    if (!l->one->text) return speech_data_leave_out(l, SKIP_NO_TRANSCRIPT, l->one->id);
    TW_TRY(normalised(l->one, &transcript));
    tw_status status =
        *transcript ? speech_data_encode(l, transcript) : speech_data_leave_out(l, SKIP_NO_TRANSCRIPT, l->one->id);
    free(transcript);
    return status;
}

/* Leaves out what has fewer frames than its transcript needs. */
static tw_status check_frames(loader *l)
{
    char example[SKIP_EXAMPLE];
    const speech_item *item = &l->item;
    size_t least = speech_least_frames(item->targets, item->target_count, l->request->frames_a_row);
    if (item->frames > 0 && item->frames >= least) return TW_OK;
    snprintf(example, sizeof example, "%s: %zu frames for %zu letters", l->one->id, item->frames, item->target_count);
    return speech_data_leave_out(l, SKIP_TOO_SHORT, example);
}

static tw_status extract(loader *l, const float *samples, size_t count)
{
    float *rows;
    l->item.frames = feature_frames(&l->request->features, count);
    TW_TRY(check_frames(l));
    if (!l->usable) return TW_OK;
    TW_TRY(row_store_take(l->set->rows, l->item.frames * l->set->width, &rows));
    l->item.rows = rows;
    l->set->seconds += (double)count / l->request->features.rate;
    return log_mel_extract(l->extractor, samples, count, rows);
}

static tw_status take_cached(loader *l, const feature_rows *cached)
{
    l->item.frames = cached->frames;
    l->item.rows = cached->rows;
    TW_TRY(check_frames(l));
    if (l->usable) l->set->seconds += cached->seconds;
    return TW_OK;
}

static tw_status read_rows(loader *l)
{
    float *samples;
    size_t count;
    feature_rows cached;
    if (l->set->cache && feature_cache_find(l->set->cache, l->item.source, &cached)) return take_cached(l, &cached);
    tw_status status = speech_read_sound(l->request, l->one, &samples, &count);
    if (status == TW_ERROR_IO || status == TW_ERROR_FORMAT)
        return speech_data_leave_out(l, SKIP_AUDIO, tw_last_error());
    TW_TRY(status);
    status = extract(l, samples, count);
    free(samples);
    return status;
}

static tw_status check_fault(loader *l)
{
    char example[SKIP_EXAMPLE];
    if (!l->one->fault) return TW_OK;
    snprintf(example, sizeof example, "%s: %s", l->one->id, l->one->fault);
    return speech_data_leave_out(l, SKIP_AUDIO, example);
}

static tw_status load_one(loader *l, const speech_list *list, size_t source)
{
    l->one = &list->items[source];
    l->item = (speech_item){.source = source};
    l->usable = true;
    tw_status status = check_fault(l);
    if (status == TW_OK && l->usable) status = read_targets(l);
    if (status == TW_OK && l->usable) status = read_rows(l);
    if (status == TW_OK && l->usable)
        l->set->items[l->set->count++] = l->item;
    else
        speech_item_release(&l->item);
    return status;
}

tw_status speech_check_left(const speech_set *set, const speech_list *list)
{
    char text[SKIPS_TEXT], hint[SPEECH_LIST_HINT];
    if (set->count) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "none of %zu %s utterances can be used: %s%s", list->count, list->part,
                   skips_text(&set->skipped, text), speech_list_hint(list, hint));
}

static tw_status load_all(loader *l, const speech_list *list)
{
    l->set->items = calloc(list->count + 1, sizeof *l->set->items);
    if (!l->set->items) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu utterances", list->count);
    if (l->request->cache) TW_TRY(feature_cache_open(list, l->request, &l->set->cache));
    for (size_t i = 0; i < list->count; i++) TW_TRY(load_one(l, list, i));
    return speech_check_left(l->set, list);
}

tw_status speech_load(const speech_list *list, const alphabet *letters, const speech_request *request, speech_set *set)
{
    loader l = {.letters = letters, .request = request, .set = set};
    *set = (speech_set){.features = request->features,
                        .width = feature_width(&request->features),
                        .frames_a_row = request->frames_a_row};
    TW_TRY(row_store_create(request->most_bytes, request->most_bytes_option, &set->rows));
    tw_status status = log_mel_create(&request->features, &l.extractor);
    if (status == TW_OK) {
        status = load_all(&l, list);
        log_mel_destroy(l.extractor);
    }
    if (status != TW_OK) speech_release(set);
    return status;
}

void speech_release(speech_set *set)
{
    for (size_t i = 0; i < set->count; i++) speech_item_release(&set->items[i]);
    free(set->items);
    row_store_destroy(set->rows);
    feature_cache_close(set->cache);
    set->items = NULL;
    set->rows = NULL;
    set->cache = NULL;
    set->count = 0;
}
