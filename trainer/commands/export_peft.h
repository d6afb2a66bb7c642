/* export_peft.h - adapters as a folder that Hugging Face's peft loads. */
#ifndef TRAINER_COMMANDS_EXPORT_PEFT_H
#define TRAINER_COMMANDS_EXPORT_PEFT_H

#include <thinwire/thinwire.h>

/* Makes the new folder `path` of the checkpoint `from`, of whose run's `which` is meant, as in trained.h: with
 * adapter_config.json and adapter_model.safetensors. TW_ERROR_UNSUPPORTED where it has no adapters. */
tw_status export_peft(const char *from, const char *which, const char *path);

#endif
