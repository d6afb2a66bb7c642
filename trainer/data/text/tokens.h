/* tokens.h - what a language model reads one at a time: words, characters, pieces of words, or numbers. */
#ifndef TRAINER_TOKENS_H
#define TRAINER_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <thinwire/thinwire.h>

typedef enum text_unit {
    TEXT_WORDS,      /* what stands between spaces (ASCII's); the end of a line is a token of its own */
    TEXT_CHARACTERS, /* Unicode code points, the ends of lines among them */
    TEXT_PIECES,     /* of a SentencePiece model (pieces.h), which alone can cut a text into them */
    TEXT_IDS         /* somebody else's tokens, of which nothing but the numbers is known (token_ids.h) */
} text_unit;

#define TOKEN_END_OF_LINE "<eos>" /* what TEXT_WORDS makes of a newline */
#define TOKEN_UNKNOWN "<unk>"     /* what stands for tokens that a vocabulary lacks */

enum { TEXT_UNITS = 4 };
const char *text_unit_name(text_unit unit); /* "words" */

/* A text in UTF-8 without zero bytes, read from `at` on: of words, characters, or numbers with white space between
 * them. */
typedef struct token_reader {
    const char *at, *end;
    text_unit unit;
} token_reader;

/* How many of `size` bytes stand before the first white space, the ends of lines among it; 0: there is none. */
size_t token_word_rest(const char *text, size_t size);
enum { TOKEN_WORD = 4096 }; /* bytes of the longest word that a text is not cut in */

/* The next token, in the text or a constant, not terminated; false at the end. */
bool token_next(token_reader *reader, const char **token, size_t *length);

enum { TOKEN_SHOWN = 64 }; /* bytes of code_point_show() that a message gives a token */

/* The error of a token that a vocabulary without <unk> lacks, and what would be right. */
tw_status token_refuse_unknown(const char *path, unsigned long long line, const char *token, size_t length,
                               text_unit unit);

/* The error of a byte that is zero, or not UTF-8 where it stands. */
tw_status token_refuse_byte(const char *path, unsigned long long line, unsigned long long offset, unsigned char byte);

/* How many bytes the code point at `text` takes, of `size` > 0 there are: 1 .. 4, or 0 where it is not UTF-8 (cut off,
 * overlong, a surrogate, beyond U+10FFFF). */
size_t utf8_length(const char *text, size_t size);
/* How many bytes there are before one that is zero or not UTF-8: `size` where none is. */
size_t utf8_prefix(const char *text, size_t size);

#endif
