/* piece_table.h - what stands in a SentencePiece model: sentencepiece_model.proto, of which this reads as much as
 * whoever else reads such a model has to know. Private to this folder, but for what pieces.h shows. */
#ifndef TRAINER_PIECE_TABLE_H
#define TRAINER_PIECE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

typedef enum piece_kind { /* the format's numbers */
                          PIECE_NORMAL = 1,
                          PIECE_UNKNOWN = 2,
                          PIECE_CONTROL = 3,
                          PIECE_USER = 4,
                          PIECE_UNUSED = 5,
                          PIECE_BYTE = 6 /* "<0x0A>" */
} piece_kind;

typedef struct word_piece {
    const char *text; /* UTF-8, with U+2581 for a space */
    float score;      /* of two pairs the one with the higher is merged first */
    piece_kind kind;
} word_piece;

enum { PIECES_UNIGRAM = 1, PIECES_MERGED = 2 }; /* ways to cut a text, the format's numbers; there are others */
#define PIECE_NONE UINT32_MAX

typedef struct piece_table {
    word_piece *pieces;
    char *texts;
    size_t count;
    uint64_t way;
    bool bytes;                   /* stand for what has no piece */
    bool normalises;              /* characters, before a text is cut */
    bool prefix;                  /* a text gets a space in front */
    bool trims;                   /* spaces beyond one, and those at the ends */
    bool escapes;                 /* a space is U+2581 */
    bool suffix;                  /* spaces end a word */
    uint32_t begin, end, unknown; /* <s>, </s> and <unk> by whatever name, or PIECE_NONE */
} piece_table;

/* Of bytes that are not trusted. TW_ERROR_FORMAT says what is wrong with them. What this accepts libsentencepiece
 * 0.1.97 reads without harm: that version trusts the tries of normalisation and the names of bytes. */
tw_status piece_table_read(const uint8_t *bytes, size_t size, piece_table *out);
void piece_table_release(piece_table *t);

#endif
