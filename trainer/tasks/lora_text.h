/* lora_text.h - the value of --lora: "rank=8,alpha=16,dropout=0,targets=q+v". Inside tasks/ only. */
#ifndef TRAINER_TASKS_LORA_TEXT_H
#define TRAINER_TASKS_LORA_TEXT_H

#include "lora.h"

/* NULL: no adapters. TW_ERROR_ARGUMENT names what is wrong. */
tw_status lora_parse(const char *text, nn_lora_options *options);
/* option_row's in_full. */
char *lora_in_full(const char *text);

#endif
