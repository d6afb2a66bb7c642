/* corpus.h - a text as three streams of token ids, for language models. */
#ifndef TRAINER_CORPUS_H
#define TRAINER_CORPUS_H

#include "long_text.h"
#include "vocabulary.h"

typedef struct token_stream {
    uint32_t *tokens; /* NULL: they are read from `text` when they are wanted */
    long_text *text;
    size_t count;
    size_t unknown; /* tokens the vocabulary lacks, which became <unk>; of the training stream: where it was given */
} token_stream;

typedef struct corpus {
    vocabulary *vocabulary;
    token_stream train, valid, test;
    uint32_t train_sum, valid_sum; /* of the tokens */
} corpus;

typedef struct corpus_options {
    text_unit unit;         /* the vocabulary's, where there is one */
    vocabulary *vocabulary; /* what to number the text by, the corpus's from now on; NULL: that of the training text */
    size_t most; /* tokens of the training text's, <unk> for the rarest beyond; 0: all. Of pieces and ids: how many */
    size_t most_bytes; /* of texts and their tokens in memory, where larger ones stay in their files; 0: no limit */
    size_t limit;      /* different tokens from which on a text is refused; 0: 4,194,304 */
} corpus_options;

/* Reads a folder with one file each for training, validation and test (PTB's and WikiText's layout: in a part of the
 * name stands "train", "valid" or "test", and it ends in .txt or .tokens), or one file, cut by position: of its bytes
 * the first 90 % train, 5 % validate, 5 % test, and the cuts move to the end of a line, or of a word, where one is
 * near. Where tokens are words, they move out of any of 4 KiB at most. Texts are UTF-8.
 *
 * Texts that would take more than `most_bytes` stay in their files (long_text.h); their tokens are the same. Such files
 * are not packed, no token has more than a MiB, and they must not change while they are in use.
 *
 * Where the unit is pieces and there is no vocabulary, they are learnt from the training text. Where it is ids, the
 * files are arrays of numpy's (token_ids.h), and in a folder their names end in .npy. Neither kind of text stays in its
 * files: TW_ERROR_UNSUPPORTED.
 *
 * TW_ERROR_IO or TW_ERROR_FORMAT name the file and the line: one that is missing, there twice, empty, not UTF-8, of too
 * many different tokens; a token that the vocabulary lacks, where it has no <unk>. */
tw_status corpus_load(const char *path, const corpus_options *options, corpus *out);
void corpus_release(corpus *c);

#endif
