/* transformer_folder.h - the folder of a LlamaForCausalLM, Qwen2ForCausalLM or Qwen3ForCausalLM as Hugging Face's
 * transformers has it.
 * Inside tasks/ only. */
#ifndef TRAINER_TASKS_TRANSFORMER_FOLDER_H
#define TRAINER_TASKS_TRANSFORMER_FOLDER_H

#include "lm_network.h"

/* The task's slot. TW_ERROR_UNSUPPORTED where the network is one of LSTMs. */
tw_status lm_describe_folder(const task_predictor *p, task_folder *folder);

/* The task's slot, in llama_folder.c: config.json, model.safetensors or what model.safetensors.index.json lists, in
 * fp32, fp16 or bf16, and tokenizer.json where it is one that thinwire export writes. Nothing of it is trusted.
 * TW_ERROR_UNSUPPORTED names what the network has that the transformer of this program has not. */
tw_status lm_read_folder(const char *folder, tw_state **state);

#endif
