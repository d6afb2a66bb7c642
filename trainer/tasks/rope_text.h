/* rope_text.h - the value of --rope-scaling: "linear:4" or "llama3:8,1,4,8192". Inside tasks/ only. */
#ifndef TRAINER_TASKS_ROPE_TEXT_H
#define TRAINER_TASKS_ROPE_TEXT_H

#include "rotary.h"
#include <thinwire/thinwire.h>

enum { ROPE_TEXT = 112 };

/* NULL: no scaling. TW_ERROR_ARGUMENT says what the text could be; numbers that cannot be are left to the network. */
tw_status rope_parse(const char *text, nn_rotary_scaling *scaling);
/* The same as text; NULL where there is no scaling. */
const char *rope_text(const nn_rotary_scaling *scaling, char text[ROPE_TEXT]);
/* option_row's in_full. */
char *rope_in_full(const char *text);

#endif
