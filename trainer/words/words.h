/* words.h - lists of words, and what somebody meant who wrote one that is not in the list. */
#ifndef TRAINER_WORDS_H
#define TRAINER_WORDS_H

#include <stddef.h>
#include <thinwire/thinwire.h>

/* Words by index; NULL past the end. */
typedef const char *(*word_at)(size_t index);

/* The word most like a mistyped one, `length` characters at `given`; NULL when none is near. Capitals are as good as
 * small letters. */
const char *words_nearest(const char *given, size_t length, word_at at);

/* For a list that is no function: *nearest and *least carry the best so far, from NULL and words_far on. */
size_t words_far(size_t length);
void words_compare(const char *given, size_t length, const char *known, const char **nearest, size_t *least);

/* Fails with `status` where there is a line end, or another character that nobody would see in a text about it. */
tw_status words_check_printed(tw_status status, const char *what, const char *given);

/* Fails with TW_ERROR_ARGUMENT: "there is no model "resnet21"; did you mean resnet20? There are cnn, resnet20". */
tw_status words_refuse(const char *what, const char *given, size_t length, word_at at);

#endif
