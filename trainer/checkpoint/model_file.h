/* model_file.h - the model.safetensors of a checkpoint, for those who use what was trained. */
#ifndef TRAINER_MODEL_FILE_H
#define TRAINER_MODEL_FILE_H

#include <stdbool.h>
#include <thinwire/thinwire.h>

#define MODEL_BEST "best"
#define MODEL_LAST "last"

/* Which checkpoint of a run's folder is meant. */
typedef struct model_choice {
    const char *which; /* MODEL_BEST, by validation, which is the last where there is no validation set; MODEL_LAST; or
                          a step */
    bool quiet;        /* not told which one it is, where the best is not the last */
} model_choice;

/* Has `read` read the model.safetensors of a checkpoint, of the one in a run's folder that is meant (NULL: the
 * last), or of that path itself, which may also be a folder of transformers. Adapters are merged into the weights
 * that they belong to. The text of its failure gets the file's name put before it. */
tw_status model_file_read(const char *path, const model_choice *meant,
                          tw_status (*read)(void *reader, const tw_state *state), void *reader);
/* The same of what the file itself holds: adapters alone. */
tw_status model_file_read_own(const char *path, const model_choice *meant,
                              tw_status (*read)(void *reader, const tw_state *state), void *reader);

/* The step that a model file calls the best up to its own; 0: it calls none so. */
#define MODEL_BEST_STEP "best.step"
uint64_t model_file_best_step(const tw_state *state);

/* Puts a file's name before the last error's text, which knows only the tensor. Returns `status`. */
tw_status model_file_named(const char *path, tw_status status);

#endif
