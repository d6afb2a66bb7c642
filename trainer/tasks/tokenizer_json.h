/* tokenizer_json.h - a vocabulary as the tokenizer.json that Hugging Face's tokenizers read, and out of a file that has
 * one. Inside tasks/ only. */
#ifndef TRAINER_TASKS_TOKENIZER_JSON_H
#define TRAINER_TASKS_TOKENIZER_JSON_H

#include "vocabulary.h"

#include <cJSON.h>

#define TOKENIZER_MODEL "tokenizer.model" /* a SentencePiece model */

/* Fills an empty object. TW_ERROR_UNSUPPORTED says what a SentencePiece model has that LlamaTokenizer has not. */
tw_status tokenizer_json_describe(const vocabulary *v, cJSON *tokenizer);

/* In tokenizer_pieces.c: the same of pieces alone; and the names of its special ones, for tokenizer_config.json. */
tw_status tokenizer_pieces_describe(const vocabulary *v, cJSON *tokenizer);
void tokenizer_pieces_describe_use(const vocabulary *v, cJSON *config);

/* The JSON in a file of such a folder, to be deleted. TW_ERROR_FORMAT: it is none, or larger than any of them. */
tw_status tokenizer_json_parse(const char *path, cJSON **json);

/* The vocabulary in a file that is not trusted: a tokenizer.json like the above, a SentencePiece model, whose name ends
 * in .model, a folder that has the one or, before that, the other, or the model.safetensors of a language model. The
 * text of a failure names the file. */
tw_status tokenizer_file_read(const char *path, vocabulary **out);

#endif
