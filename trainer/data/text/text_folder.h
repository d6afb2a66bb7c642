/* text_folder.h - the three files of a folder with texts. Private to this folder. */
#ifndef TRAINER_TEXT_FOLDER_H
#define TRAINER_TEXT_FOLDER_H

#include "tokens.h"

enum { TEXT_PATH = 4096 };

/* The paths of the files for training, validation and test, which end in .npy where the unit is TEXT_IDS. TW_ERROR_IO
 * says what is missing; TW_ERROR_FORMAT which two files claim to be the same. */
tw_status text_folder_find(const char *folder, text_unit unit, char paths[3][TEXT_PATH]);

#endif
