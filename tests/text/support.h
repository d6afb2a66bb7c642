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

/* The list ends with NULL. */
static inline vocabulary *make(text_unit unit, const char *const *tokens)
{
    vocabulary *v;
    uint32_t id;
    assert_ok(vocabulary_create(unit, &v));
    for (uint32_t i = 0; tokens[i]; i++) {
        assert_ok(vocabulary_add(v, tokens[i], strlen(tokens[i]), &id));
        assert_int_equal(id, i);
    }
    return v;
}

/* The stream is these tokens. */
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

static inline void assert_same_stream(const token_stream *here, const token_stream *stays)
{
    text_window w = {0};
    assert_null(stays->tokens);
    assert_int_equal(stays->count, here->count);
    assert_int_equal(stays->unknown, here->unknown);
    uint32_t *ids = malloc(here->count * sizeof *ids);
    assert_ok(long_text_read(stays->text, &w, 0, here->count, ids));
    assert_memory_equal(ids, here->tokens, here->count * sizeof *ids);
    free(ids);
    text_window_release(&w);
}

/* One in memory, and one that stays in its files. */
static inline void assert_same_corpus(const corpus *here, const corpus *stays)
{
    assert_int_equal(vocabulary_count(stays->vocabulary), vocabulary_count(here->vocabulary));
    for (uint32_t id = 0; id < vocabulary_count(here->vocabulary); id++)
        assert_string_equal(vocabulary_token(stays->vocabulary, id), vocabulary_token(here->vocabulary, id));
    assert_int_equal(stays->train_sum, here->train_sum);
    assert_int_equal(stays->valid_sum, here->valid_sum);
    assert_same_stream(&here->train, &stays->train);
    assert_same_stream(&here->valid, &stays->valid);
    assert_same_stream(&here->test, &stays->test);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
