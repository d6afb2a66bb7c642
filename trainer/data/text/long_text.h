/* long_text.h - a text that is not held in memory: its tokens are read from the file whenever they are wanted.
 *
 * A first pass gathers the vocabulary and notes where every 4,096th token begins; that, the vocabulary and a window of
 * the file are all that memory holds. Private to this folder, but for what strips.h shows. */
#ifndef TRAINER_LONG_TEXT_H
#define TRAINER_LONG_TEXT_H

#include "vocabulary.h"
#include <time.h>

enum { LONG_TEXT_PATH = 4096 };

typedef struct long_text {
    char path[LONG_TEXT_PATH];
    int descriptor;
    struct timespec changed; /* when the file was, as it is known */
    uint64_t begin, end;     /* the part of the file that this text is */
    const vocabulary *known; /* that the tokens are numbered by; borrowed */
    uint64_t *offsets;       /* where tokens 0, 4096, 8192, ... begin */
    size_t count, unknown;   /* tokens; of them those that the vocabulary lacks */
} long_text;

/* A place in a text, and what has been read of the file from there on. Begin with zeros. */
typedef struct text_window {
    const long_text *text;
    char *bytes;
    size_t capacity, used, at; /* the next token begins at bytes[at] */
    size_t checked;            /* bytes that are known to be UTF-8 */
    uint64_t offset;           /* of bytes[0], in the file */
    uint64_t token;            /* the number of the next token */
} text_window;

void text_window_release(text_window *w);

/* A file's part; its bytes are read later. TW_ERROR_IO names the path. */
tw_status long_text_open(const char *path, uint64_t begin, uint64_t end, long_text **out);
void long_text_close(long_text *t); /* NULL is none */

/* The bytes of a text without the mark that some editors put in front. */
tw_status long_text_bounds(const char *path, uint64_t *begin, uint64_t *end);
/* Where the part of it ends that should be about `share` of it: as corpus.h says of a text that is cut by position. */
tw_status long_text_cut(const char *path, uint64_t begin, uint64_t end, double share, text_unit unit, uint64_t *at);

/* Meets all tokens of a training text; `often` becomes how often each was there, for free(). */
tw_status long_text_meet(long_text *t, size_t limit, vocabulary *met, uint64_t **often);
/* Numbers the tokens by a vocabulary, and sums the numbers up as if they stood in an array. Notes where tokens begin,
 * where that is not known yet. */
tw_status long_text_number(long_text *t, const vocabulary *known, uint32_t *sum);

/* The numbers of the tokens first .. first + count - 1. Going on where the last call ended is quick. */
tw_status long_text_read(const long_text *t, text_window *w, size_t first, size_t count, uint32_t *ids);

#endif
