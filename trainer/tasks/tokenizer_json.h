/* tokenizer_json.h - a vocabulary as the tokenizer.json that Hugging Face's tokenizers read, and out of a file that has
 * one. Inside tasks/ only. */
#ifndef TRAINER_TASKS_TOKENIZER_JSON_H
#define TRAINER_TASKS_TOKENIZER_JSON_H

#include "vocabulary.h"

#include <cJSON.h>

#define TOKENIZER_MODEL "tokenizer.model" /* a SentencePiece model */

/* Fills an empty object. */
void tokenizer_json_describe(const vocabulary *v, cJSON *tokenizer);

/* The vocabulary in a file that is not trusted: a tokenizer.json like the above, a SentencePiece model, whose name ends in
 * .model, a folder that has the one or, before that, the other, or the model.safetensors of a language model. The text
 * of a failure names the file. */
tw_status tokenizer_file_read(const char *path, vocabulary **out);

#endif
