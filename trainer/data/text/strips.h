/* strips.h - a stream of tokens cut into parallel strips, read a few tokens of each at a time.
 *
 * A model with a state that is carried from batch to batch reads every strip from its beginning to its end. Workers
 * read slices of one set of strips, so that together they read the same however many they are. */
#ifndef TRAINER_STRIPS_H
#define TRAINER_STRIPS_H

#include "corpus.h"

typedef struct strips {
    const uint32_t *tokens; /* the first strip's; the others follow. Borrowed. NULL: they stand in a file, */
    const long_text *text;
    size_t first;  /* from this token on */
    size_t length; /* tokens of a strip */
    size_t count;
} strips;

/* Cuts a stream into `count` strips of equal length. The last token to predict in a strip is the first of the next, and
 * what is left over at the end of the stream, fewer than `count` tokens and one, is dropped. TW_ERROR_ARGUMENT where
 * strips would have less than `least` tokens; `name` stands for the stream in its text. */
tw_status strips_cut(const token_stream *stream, const char *name, size_t count, size_t least, strips *out);

/* The strips first .. first + count - 1. */
strips strips_slice(const strips *s, size_t first, size_t count);

/* Reads the tokens from .. from + steps - 1 of each strip into inputs (steps, count), and those that follow each of
 * them into targets. */
void strips_read(const strips *s, size_t from, size_t steps, int32_t *inputs, int32_t *targets);

/* The same of strips in a file, which are read on from where each was left. Begin with zeros; 64 KiB a strip. */
typedef struct strip_place {
    text_window window;
    uint32_t last; /* the token before the window's next */
} strip_place;

/* `places` has one for each strip, `room` is for steps + 1 tokens. TW_ERROR_IO where the file has changed. */
tw_status strips_read_file(const strips *s, strip_place *places, uint32_t *room, size_t from, size_t steps,
                           int32_t *inputs, int32_t *targets);

#endif
