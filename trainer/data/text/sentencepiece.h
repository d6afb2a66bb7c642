/* sentencepiece.h - what pieces.c asks of libsentencepiece, which is C++: sentencepiece.cc. Where the library is not
 * there, sentencepiece_none.c says so in its place. Private to this folder. */
#ifndef TRAINER_SENTENCEPIECE_H
#define TRAINER_SENTENCEPIECE_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct piece_model piece_model;

/* TW_ERROR_FORMAT says what the library has against a model, TW_ERROR_UNSUPPORTED that the library is not there. */
tw_status piece_model_open(const uint8_t *bytes, size_t size, piece_model **out);
void piece_model_close(piece_model *m);

/* What comes out is for free(). The text ends with a zero byte, and may have others. */
tw_status piece_model_encode(const piece_model *m, const char *text, size_t size, uint32_t **ids, size_t *count);
tw_status piece_model_decode(const piece_model *m, const uint32_t *ids, size_t count, char **text, size_t *size);

/* The texts to learn from, one after the other; NULL at the end. */
typedef const char *(*piece_source)(void *context, size_t *size);
/* A model of `count` pieces, merged from pairs (BPE); unless `exactly`, of fewer where the texts make no more. They
 * keep every character of a text, and where one has no piece, its bytes stand for it. What comes out is for free().
 * TW_ERROR_ARGUMENT says how many the texts make. */
tw_status piece_model_train(piece_source next, void *context, size_t count, int exactly, uint8_t **bytes, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
