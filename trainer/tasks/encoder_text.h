/* encoder_text.h - by which a checkpoint remembers the sizes of its speech encoder. */
#ifndef TRAINER_TASKS_ENCODER_TEXT_H
#define TRAINER_TASKS_ENCODER_TEXT_H

#include "speech_encoder.h"

enum { ENCODER_TEXT = 192 };
/* "features=40,channels=32,width=128,heads=4,kernel=15,blocks=8,relative=0" */
const char *encoder_text(const speech_encoder_config *config, char text[ENCODER_TEXT]);
/* Reads it back; without dropout. The text may be anybody's: TW_ERROR_FORMAT where it is no such text, or of sizes that
 * cannot be. */
tw_status encoder_parse(const char *text, speech_encoder_config *config);

#endif
