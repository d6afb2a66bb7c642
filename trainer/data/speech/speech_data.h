/* speech_data.h - the features and the transcripts of utterances. */
#ifndef TRAINER_SPEECH_SPEECH_DATA_H
#define TRAINER_SPEECH_SPEECH_DATA_H

#include <stdint.h>

#include "alphabet.h"
#include "feature_cache.h"
#include "row_store.h"
#include "skips.h"
#include "speech_request.h"

typedef struct speech_item {
    size_t source; /* its place in the list it was loaded from */
    size_t frames;
    const float *rows; /* (frames, width); the set's */
    uint32_t *targets; /* letters' numbers, or one class a frame */
    size_t target_count;
} speech_item;

typedef struct speech_set {
    feature_settings features;
    size_t width;        /* feature_width() */
    size_t frames_a_row; /* of the request */
    size_t count;
    speech_item *items;
    row_store *rows;      /* of all items, but for those in the cache */
    feature_cache *cache; /* NULL: none */
    double seconds;       /* of sound in them */
    skips skipped;
} speech_set;

/* The letters of all transcripts of a list; utterances that have none, or a fault, are passed over. */
tw_status speech_alphabet(const speech_list *list, alphabet *letters);

/* Loads a list. Left out and counted are utterances without a transcript, with letters the alphabet has not, with
 * unusable sound or a fault, and those too short for their transcript under CTC; when none is left, that is
 * TW_ERROR_FORMAT with the counts. `letters` may be NULL: transcripts are then not looked at, and there are no targets.
 * TW_ERROR_IO where the temporary file, or the cache, has no room. */
tw_status speech_load(const speech_list *list, const alphabet *letters, const speech_request *request, speech_set *set);
void speech_release(speech_set *set);

/* The fewest frames that can say these targets under CTC, of which `a_row` make one row: a row each, and a blank
 * between equal neighbours. */
size_t speech_least_frames(const uint32_t *targets, size_t count, size_t a_row);

/* Releases an item; it is to be overwritten or forgotten. */
void speech_item_release(speech_item *item);
/* TW_OK unless no item is left of the list. */
tw_status speech_check_left(const speech_set *set, const speech_list *list);

#endif
