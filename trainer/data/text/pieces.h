/* pieces.h - the tokens of a SentencePiece model: from a text to their numbers and back.
 *
 * The numbers of a text are those of the whole text at once, though it is read a line at a time: no piece goes over the
 * end of a line. Where a model does not keep ends of lines, as most do that are not of language models, each line is
 * read for itself, and the model's end of a text (</s>) stands between two. */
#ifndef TRAINER_PIECES_H
#define TRAINER_PIECES_H

#include "piece_table.h"

typedef struct piece_set piece_set;

/* Of bytes that are not trusted, which are copied. TW_ERROR_FORMAT says what is wrong with them, TW_ERROR_UNSUPPORTED
 * what is not read, or that the program was built without SentencePiece. */
tw_status pieces_read(const uint8_t *bytes, size_t size, piece_set **out);
void pieces_destroy(piece_set *p); /* NULL is none */

enum { PIECES_USUAL = 4096 };

/* Learns `count` pieces from a text in UTF-8: of its lines, if it is long, so many as come to 64 MiB. 0: PIECES_USUAL,
 * or as many as the text makes. The same text gives the same pieces. They give back every text as it was, but for
 * U+2581, which is a space. TW_ERROR_ARGUMENT says how many it may be. */
tw_status pieces_train(const char *text, size_t size, size_t count, piece_set **out);

const piece_table *pieces_table(const piece_set *p);
const uint8_t *pieces_bytes(const piece_set *p, size_t *size);

/* What a text begins with: the model's begin of a text (<s>), else the end of a line. */
uint32_t pieces_begin(const piece_set *p);

/* Numbers, in an array that grows. Begin with zeros, end with free(). */
typedef struct piece_ids {
    uint32_t *ids;
    size_t count, capacity;
} piece_ids;

tw_status piece_ids_add(piece_ids *to, const uint32_t *ids, size_t count);
/* Adds those of a text in UTF-8. */
tw_status pieces_encode(const piece_set *p, const char *text, size_t size, piece_ids *ids);
/* The text of any numbers below the table's count, for free(). What is not UTF-8 in it becomes U+FFFD. */
tw_status pieces_decode(const piece_set *p, const uint32_t *ids, size_t count, char **text, size_t *size);

#endif
