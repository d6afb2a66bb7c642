/* skips.h - what was left out of a data set and why, for one line to a person. */
#ifndef TRAINER_SPEECH_SKIPS_H
#define TRAINER_SPEECH_SKIPS_H

#include <stddef.h>

typedef enum skip_reason {
    SKIP_NO_TRANSCRIPT,
    SKIP_AUDIO,      /* the file is missing, damaged, too long ... */
    SKIP_CHARACTERS, /* the transcript has some that the alphabet has not */
    SKIP_TOO_SHORT,  /* for its transcript, or for a window */
    SKIP_ALIGNMENT,  /* missing, or not of the sound's length */
    SKIP_REASONS
} skip_reason;

enum { SKIP_EXAMPLE = 256, SKIPS_TEXT = SKIP_REASONS * (SKIP_EXAMPLE + 64) };

/* Begin with all zeros. */
typedef struct skips {
    size_t count[SKIP_REASONS];
    char first[SKIP_REASONS][SKIP_EXAMPLE]; /* an example of each, the first met */
} skips;

/* The example may hold any bytes; it is kept as code_point_show() shows it. */
void skips_add(skips *s, skip_reason reason, const char *example);
size_t skips_total(const skips *s);

/* "3 utterances skipped: 1 without a transcript (ID), 2 with unusable audio (first: ...)"; "" when there are none. */
const char *skips_text(const skips *s, char text[SKIPS_TEXT]);

#endif
