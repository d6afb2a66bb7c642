/* sound.h - sound files as one channel of floats at a wanted rate. */
#ifndef TRAINER_SPEECH_SOUND_H
#define TRAINER_SPEECH_SOUND_H

#include <stddef.h>
#include <thinwire/thinwire.h>

enum { SOUND_MONO = -1 };

typedef struct sound_request {
    int rate;            /* samples a second to deliver; the file's own rate is converted */
    int channel;         /* which channel of the file, from 0; SOUND_MONO: it must have one only */
    double offset;       /* seconds into the file */
    double duration;     /* seconds from there; 0: to the end. Up to half a second of it may be missing */
    double most_seconds; /* longer ones are refused */
} sound_request;

/* Reads WAV, FLAC, OGG and whatever else libsndfile knows into *samples, nominally -1 .. 1, for free(). Files are not
 * trusted: TW_ERROR_IO when the file cannot be opened, TW_ERROR_FORMAT when it is empty, damaged, not sound, of several
 * channels, too long, not finite or beyond 1e10, with a sentence that names it. A WAV may hold less than its header
 * promises, since who writes one to a pipe cannot know its length: what is there is read. */
tw_status sound_read(const char *path, const sound_request *request, float **samples, size_t *count);

/* The file's own rate, from its header. */
tw_status sound_rate(const char *path, int *rate);

#endif
