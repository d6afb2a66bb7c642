/* scheme_words.h - the names of schemes and of their options, as lists of words. */
#ifndef TRAINER_SCHEME_WORDS_H
#define TRAINER_SCHEME_WORDS_H

#include "words.h"

/* Of the schemes for gradients, and then for weights; NULL past the end. */
const char *scheme_word(size_t index);
const char *scheme_word_meaning(size_t index);

/* Refuses a spec with a misspelt option, where one of that scheme's is near. All else is the library's to judge. */
tw_status scheme_check_spelling(const char *spec);

#endif
