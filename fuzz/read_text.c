/* Reads any text as the vocabulary of a checkpoint, or as a corpus: the first byte chooses. A vocabulary that is
 * accepted must know its own tokens and come back from its own text; of a corpus every token must be in its vocabulary.
 */
#include "corpus.h"
#include "fuzz.h"
#include "memory_file.h"

#include <string.h>

static void check_tokens(const vocabulary *v)
{
    for (size_t id = 0; id < vocabulary_count(v); id++) {
        const char *token = vocabulary_token(v, (uint32_t)id);
        must(*token != 0 && vocabulary_find(v, token, strlen(token)) == id);
    }
}

static void check_writing(const vocabulary *v)
{
    vocabulary *again;
    char *text, *text_again;
    must(vocabulary_write(v, &text) == TW_OK);
    must(vocabulary_read(text, &again) == TW_OK);
    must(vocabulary_count(again) == vocabulary_count(v) && vocabulary_unit(again) == vocabulary_unit(v));
    must(vocabulary_write(again, &text_again) == TW_OK && strcmp(text, text_again) == 0);
    free(text);
    free(text_again);
    vocabulary_destroy(again);
}

static void read_vocabulary(const uint8_t *data, size_t size)
{
    vocabulary *v;
    char *text = malloc(size + 1);
    must(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    tw_status status = vocabulary_read(text, &v);
    must(status == TW_OK || status == TW_ERROR_FORMAT || status == TW_ERROR_UNSUPPORTED);
    if (status == TW_OK) {
        check_tokens(v);
        check_writing(v);
        vocabulary_destroy(v);
    }
    free(text);
}

static void check_stream(const token_stream *stream, const vocabulary *v)
{
    for (size_t i = 0; i < stream->count; i++) must(stream->tokens[i] < vocabulary_count(v));
    must(stream->unknown <= stream->count);
}

static void read_corpus(const uint8_t *data, size_t size, text_unit unit)
{
    corpus c;
    corpus_options options = {.unit = unit, .most = size % 3 && unit != TEXT_IDS ? 0 : 4};
    tw_status status = corpus_load(file_of(data, size), &options, &c);
    must(status == TW_OK || status == TW_ERROR_FORMAT || status == TW_ERROR_IO);
    if (status != TW_OK) return;
    must(options.most == 0 || vocabulary_count(c.vocabulary) <= options.most);
    check_tokens(c.vocabulary);
    check_writing(c.vocabulary);
    check_stream(&c.train, c.vocabulary);
    check_stream(&c.valid, c.vocabulary);
    check_stream(&c.test, c.vocabulary);
    must(c.train.unknown == 0);
    corpus_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    static const text_unit units[] = {TEXT_WORDS, TEXT_CHARACTERS, TEXT_IDS};
    if (data[0] % 4 == 0)
        read_vocabulary(data + 1, size - 1);
    else
        read_corpus(data + 1, size - 1, units[data[0] % 4 - 1]);
    return 0;
}
