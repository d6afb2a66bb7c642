/* transformer_folder.h - what Hugging Face's transformers and tokenizers read beside the weights of a LlamaForCausalLM.
 * Inside tasks/ only. */
#ifndef TRAINER_TASKS_TRANSFORMER_FOLDER_H
#define TRAINER_TASKS_TRANSFORMER_FOLDER_H

#include "lm_network.h"

/* The task's slot. TW_ERROR_UNSUPPORTED where the network is one of LSTMs. */
tw_status lm_describe_folder(const task_predictor *p, const task_folder *folder);

#endif
