/* frame_data.h - windows of speech with a class for every frame, as acoustic models of the hybrid kind learn them. */
#ifndef TRAINER_SPEECH_FRAME_DATA_H
#define TRAINER_SPEECH_FRAME_DATA_H

#include "speech_data.h"

enum { FRAME_NONE = -1 }; /* the target of a frame that another window has */

typedef struct frame_window {
    uint32_t item, first; /* which utterance, and from which frame on */
} frame_window;

typedef struct frame_set {
    speech_set speech; /* targets: one class a frame */
    size_t classes;
    size_t length; /* of a window, in frames */
    size_t count;
    frame_window *windows;
} frame_set;

/* Loads a list and the alignment file of its utterances, lines of `id class class ...` with a class for each frame as
 * Kaldi counts them: the windows that fit whole. Up to two classes too many or too few are forgiven (the last one goes
 * on), as tools differ at the ends. Utterances cut into windows of `length` frames; the last window ends with its
 * utterance, and the frames it shares with the one before are FRAME_NONE in it, so that each frame counts once.
 * `classes`: how many there are, for a test set whose training set is known; 0: the largest in the file and one.
 * Utterances without a fitting alignment or shorter than a window are left out and counted in speech.skipped. */
tw_status frame_load(const speech_list *list, const char *alignment, const speech_request *request, size_t length,
                     size_t classes, frame_set *set);
void frame_release(frame_set *set);

/* Copies the windows order[0 .. count): features (length, count, width), targets (length, count). data_shuffle makes
 * the order of an epoch. */
void frame_fill(const frame_set *set, const uint32_t *order, size_t count, float *features, int32_t *targets);

#endif
