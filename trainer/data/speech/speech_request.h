/* speech_request.h - what is asked of the sounds of a corpus. */
#ifndef TRAINER_SPEECH_SPEECH_REQUEST_H
#define TRAINER_SPEECH_SPEECH_REQUEST_H

#include "feature_settings.h"
#include "speech_corpus.h"

typedef struct speech_request {
    feature_settings features;
    int channel;                   /* of files with several; SOUND_MONO: such files are left out */
    double most_seconds;           /* longer utterances are left out */
    size_t most_bytes;             /* of features in memory; what is beyond them is in a temporary file (row_store.h) */
    const char *most_bytes_option; /* what a person raises it with, for texts */
    const char *cache;             /* NULL, or the folder for feature_cache.h */
    const char *cache_option;      /* what a person named it with, for texts */
    size_t frames_a_row;           /* of what CTC reads: how many frames make one row; 0 is 1 */
} speech_request;

/* The samples of an utterance, as sound_read() gives them. */
tw_status speech_read_sound(const speech_request *request, const speech_utterance *one, float **samples, size_t *count);

#endif
