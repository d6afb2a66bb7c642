/* alphabet.h - the letters a recogniser writes, and transcripts in them. */
#ifndef TRAINER_SPEECH_ALPHABET_H
#define TRAINER_SPEECH_ALPHABET_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

/* Number i + 1 stands for letters[i]; 0 is CTC's blank, which is not a letter. Begin with all zeros. */
typedef struct alphabet {
    uint32_t *letters; /* of Unicode, in its order */
    size_t count, capacity;
} alphabet;

/* Brings a transcript into the form that is learned: lower case; an apostrophe of any kind is '; letters, digits and
 * combining marks stay; runs of whatever else become one space; none at the ends. `dst` has room for
 * transcript_capacity(src) bytes, and holds "" where nothing is left. TW_ERROR_FORMAT when `src` is not UTF-8. */
size_t transcript_capacity(const char *src);
tw_status transcript_normalise(const char *src, char *dst);

/* Adds the letters of a normalised transcript that are not there yet; the numbers of others may change. */
tw_status alphabet_add(alphabet *a, const char *transcript);
void alphabet_release(alphabet *a);

/* All letters in the order of their numbers, in UTF-8 (for free()): the form a checkpoint keeps. They may be
 * parsed in any order; TW_ERROR_FORMAT when the text is empty, not UTF-8, or has a letter twice. */
tw_status alphabet_text(const alphabet *a, char **text);
tw_status alphabet_parse(const char *text, alphabet *a);

/* A normalised transcript as numbers, at most one a byte of it. TW_ERROR_FORMAT names a letter that is not there. */
tw_status alphabet_encode(const alphabet *a, const char *transcript, uint32_t *numbers, size_t *count);
/* The letters of numbers 1 .. count of the alphabet; `text` has room for 4 * count + 1 bytes. */
void alphabet_decode(const alphabet *a, const uint32_t *numbers, size_t count, char *text);

#endif
