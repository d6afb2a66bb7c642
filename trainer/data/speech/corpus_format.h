/* corpus_format.h - what a format of speech corpora offers: one file and one line in the list of speech_corpus.c.
 * Private to this folder. */
#ifndef TRAINER_SPEECH_CORPUS_FORMAT_H
#define TRAINER_SPEECH_CORPUS_FORMAT_H

#include <fts.h>
#include <stdbool.h>

#include "speech_corpus.h"

typedef struct corpus_format {
    const char *name;
    const char *files; /* what marks it, for the text when none fits */
    /* True if the path holds what marks the format; `read` then says what is wrong with the rest. */
    bool (*found)(const char *path);
    /* Appends what is there. What was appended before a failure is released by the caller. */
    tw_status (*read)(const char *path, speech_list *list);
    bool (*is_test)(const speech_utterance *one); /* (optional) the split of the corpus's owners */
} corpus_format;

extern const corpus_format manifest_format, kaldi_format, words_format, librispeech_format;
extern const corpus_format kaldi_sounds_format, tree_format; /* which need no transcripts */

/* Appends a copy of `one`, whose text and speaker may be NULL. */
tw_status speech_list_add(speech_list *list, const speech_utterance *one);
/* Frees such a copy. */
void speech_utterance_release(speech_utterance *one);

enum { CORPUS_PATH = 4096 };
/* folder/name and the ending into path; without the folder where `name` is absolute. TW_ERROR_FORMAT: too long. */
tw_status corpus_path(char path[CORPUS_PATH], const char *folder, const char *name, const char *ending);
/* The folder a file stands in. */
void corpus_parent(char folder[CORPUS_PATH], const char *path);
bool corpus_holds(const char *folder, const char *name);

/* Files below a folder, which are met in the order of their names. */
typedef struct corpus_files {
    int deepest; /* folders on the way to one, at most */
    bool (*wanted)(const FTSENT *file);
    tw_status (*take)(const char *root, const FTSENT *file, speech_list *list);
} corpus_files;

/* Takes all that are wanted. TW_ERROR_IO names the folder. */
tw_status corpus_take_files(const char *root, const corpus_files *files, speech_list *list);
/* Whether there is one. */
bool corpus_has_files(const char *root, const corpus_files *files);

#endif
