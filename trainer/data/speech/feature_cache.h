/* feature_cache.h - the features of a list of utterances, computed once: for later runs, and for all processes that
 * name the same folder. They are in a file of that folder, which is mapped: the system holds its pages while there is
 * room for them, once for all processes of a machine.
 *
 * A file belongs to its settings and to each utterance's sound file, size, time of change and piece; to another list,
 * to other settings or to a sound that has changed belongs another file. Transcripts are no part of it. */
#ifndef TRAINER_SPEECH_FEATURE_CACHE_H
#define TRAINER_SPEECH_FEATURE_CACHE_H

#include <stdbool.h>

#include "speech_request.h"

typedef struct feature_cache feature_cache;

typedef struct feature_rows {
    size_t frames;
    double seconds;
    const float *rows; /* (frames, width); the cache's */
} feature_rows;

/* Opens the list's file in request->cache, or makes it; meanwhile others that need the same wait, and take it over when
 * its maker ends. A file that is damaged is made anew. The folder is made where there is none. TW_ERROR_MEMORY;
 * TW_ERROR_IO where the folder or its disk does not take the file. */
tw_status feature_cache_open(const speech_list *list, const speech_request *request, feature_cache **cache);
/* NULL is none. */
void feature_cache_close(feature_cache *cache);

/* False for an utterance whose sound could not be used, or holds no frame: the sound itself tells why. */
bool feature_cache_find(const feature_cache *cache, size_t utterance, feature_rows *found);

#endif
