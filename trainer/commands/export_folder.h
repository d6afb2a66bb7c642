/* export_folder.h - a trained network as a folder that Hugging Face's transformers loads. */
#ifndef TRAINER_COMMANDS_EXPORT_FOLDER_H
#define TRAINER_COMMANDS_EXPORT_FOLDER_H

#include "trained.h"

/* What other readers of safetensors look for. */
#define EXPORTED "pt"

/* The network's tensors, and whose they are. */
tw_status export_tensors(const trained *t, tw_state *state);

/* Makes a new folder of config.json, tokenizer.json, tokenizer_config.json and model.safetensors. `loader`, what
 * --loader says, must be NULL: transformers has its own. A network of SentencePiece pieces has tokenizer.model, too. */
tw_status export_folder(const trained *t, const char *loader, const char *path);

/* Makes the folder for option --`whose`. It is new: nothing of anybody's is lost, and no file of another network
 * stays. */
tw_status export_make_folder(const char *path, const char *whose);

#endif
