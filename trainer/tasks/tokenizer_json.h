/* tokenizer_json.h - a vocabulary as the tokenizer.json that Hugging Face's tokenizers read, and out of a file that has
 * one. Inside tasks/ only. */
#ifndef TRAINER_TASKS_TOKENIZER_JSON_H
#define TRAINER_TASKS_TOKENIZER_JSON_H

#include "vocabulary.h"

#include <cJSON.h>

/* Fills an empty object. */
void tokenizer_json_describe(const vocabulary *v, cJSON *tokenizer);

/* The vocabulary in a file that is not trusted: a tokenizer.json like the above, a folder that has one, or the
 * model.safetensors of a language model. The text of a failure names the file. */
tw_status tokenizer_file_read(const char *path, vocabulary **out);

#endif
