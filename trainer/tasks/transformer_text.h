/* transformer_text.h - the text TASK_NETWORK, by which a checkpoint remembers what the shapes of a transformer's
 * tensors do not tell. */
#ifndef TRAINER_TASKS_TRANSFORMER_TEXT_H
#define TRAINER_TASKS_TRANSFORMER_TEXT_H

#include "language_model.h"
#include "task.h"

/* A family's model_type in transformers; and the class, "LlamaForCausalLM", has the same with a capital. */
extern const char *const transformer_families[DECODER_FAMILIES];

enum { TRANSFORMER_CONTEXT_MOST = 65536 };
/* "heads=4,kv_heads=2,context=128", and behind it ",theta=500000,epsilon=1e-06" where these are not the usual ones, and
 * ",rope=llama3:8,1,4,8192" where there is a scaling; context: the steps that it was trained with. */
const char *transformer_text(const language_model_config *config, size_t context, char text[TASK_NETWORK_TEXT]);

/* The same and the shapes of the tensors, of a checkpoint that may be anybody's. TW_ERROR_FORMAT says what is missing.
 */
tw_status transformer_read(const tw_state *state, language_model_config *config, size_t *types, size_t *context);
/* Weights of such a network, without the norms. */
double transformer_weights(const language_model_config *config, size_t types);

#endif
