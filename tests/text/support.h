/* support.h - texts to write into a folder of the test's own, and what came of them. */
#ifndef TESTS_TEXT_SUPPORT_H
#define TESTS_TEXT_SUPPORT_H

#include "corpus.h"
#include "support/assert.h"
#include "support/folder.h"

/* PTB's layout. */
static inline void write_folder(const char *train, const char *valid, const char *test)
{
    write_text("ptb.train.txt", train);
    write_text("ptb.valid.txt", valid);
    write_text("ptb.test.txt", test);
}

static inline uint32_t id_of(const vocabulary *v, const char *token)
{
    return vocabulary_find(v, token, strlen(token));
}

/* The stream is these tokens; the list ends with NULL. */
static inline void assert_tokens(const vocabulary *v, const token_stream *stream, const char *const *tokens)
{
    size_t count = 0;
    for (; tokens[count]; count++) {
        assert_true(count < stream->count);
        assert_string_equal(vocabulary_token(v, stream->tokens[count]), tokens[count]);
    }
    assert_int_equal(stream->count, count);
}

/* The vocabulary is these tokens in this order. */
static inline void assert_vocabulary(const vocabulary *v, const char *const *tokens)
{
    uint32_t id = 0;
    for (; tokens[id]; id++) {
        assert_true(id < vocabulary_count(v));
        assert_string_equal(vocabulary_token(v, id), tokens[id]);
        assert_int_equal(id_of(v, tokens[id]), id);
    }
    assert_int_equal(vocabulary_count(v), id);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
