/* vocabulary.h - the tokens a model knows, and their numbers. */
#ifndef TRAINER_VOCABULARY_H
#define TRAINER_VOCABULARY_H

#include "pieces.h"
#include "tokens.h"
#include <stdint.h>
#include <thinwire/thinwire.h>

/* Different tokens with the ids 0 .. count-1, below 2^31, in the order in which they were added. */
typedef struct vocabulary vocabulary;

#define VOCABULARY_NONE UINT32_MAX /* no token has this id */

tw_status vocabulary_create(text_unit unit, vocabulary **out);
/* The pieces of a model, which is the vocabulary's from now on, also when this fails. */
tw_status vocabulary_of_pieces(piece_set *model, vocabulary **out);
/* The numbers 0 .. count-1, whose texts are "0", "1", "2" and on. TW_ERROR_ARGUMENT: count is not from 2 to
 * VOCABULARY_IDS_MOST. */
enum { VOCABULARY_IDS_MOST = 1 << 22 };
tw_status vocabulary_of_ids(size_t count, vocabulary **out);
void vocabulary_destroy(vocabulary *v);

text_unit vocabulary_unit(const vocabulary *v);
size_t vocabulary_count(const vocabulary *v);
const piece_set *vocabulary_pieces(const vocabulary *v); /* NULL: its tokens are of another unit */
/* What a text begins with where a network is to write one: the end of a line, and of pieces what pieces_begin says. Or
 * VOCABULARY_NONE. */
uint32_t vocabulary_begin(const vocabulary *v);

/* The token's id; a new one is added. A token has at least one byte and no zero byte. */
tw_status vocabulary_add(vocabulary *v, const char *token, size_t length, uint32_t *id);
/* The token's id, or VOCABULARY_NONE. */
uint32_t vocabulary_find(const vocabulary *v, const char *token, size_t length);
/* The id of a token that may be missing: <unk>'s where the vocabulary has it, else VOCABULARY_NONE. */
uint32_t vocabulary_find_or_unknown(const vocabulary *v, const char *token, size_t length);
/* The token of an id < count. It ends with a zero byte and is the vocabulary's, valid until the next token is added. */
const char *vocabulary_token(const vocabulary *v, uint32_t id);

/* The vocabulary to train with, out of the tokens `met` in a text, of which id was there often[id] times: by descending
 * frequency, then in the order of their bytes. Where there are more than `most` (0: no such limit, else at least 2) the
 * rarest give way to <unk>, which counts for them. */
tw_status vocabulary_rank(const vocabulary *met, const uint64_t *often, size_t most, vocabulary **out);

/* As a text for a checkpoint: a line "words" or "characters", then a token a line, "\n" and "\\" for newline and
 * backslash. Or a line "pieces", and the bytes of the SentencePiece model in hexadecimal. Or a line "ids", and a line
 * that says how many. For free(). */
tw_status vocabulary_write(const vocabulary *v, char **text);
/* The same back, of a text that is not trusted: TW_ERROR_FORMAT says which line is wrong. Of pieces
 * TW_ERROR_UNSUPPORTED, too, as pieces_read. */
tw_status vocabulary_read(const char *text, vocabulary **out);

#endif
