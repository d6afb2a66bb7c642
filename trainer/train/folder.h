/* folder.h - the folders of a run's checkpoints: <out>/checkpoints/step-00001234/.
 *
 * A checkpoint is written into step-N.partial/ and renamed when every rank has written its part, so a folder step-N is
 * always whole. Ranks may share a file system or have one each: every rank calls each function, and finds done what
 * another did before it. */
#ifndef TRAINER_FOLDER_H
#define TRAINER_FOLDER_H

#include <thinwire/thinwire.h>

#define FOLDER_PATH 4096

/* Makes a folder and those above it. */
tw_status folder_make(const char *path);

/* Makes step-N.partial/ and writes its path. An older checkpoint of the same step steps aside. */
tw_status folder_begin(const char *out, uint64_t step, char partial[FOLDER_PATH]);
/* Renames it to step-N/, then removes all but the last two checkpoints and what runs that were killed left behind. */
tw_status folder_publish(const char *out, uint64_t step);
/* Removes step-N.partial/, because the checkpoint failed; one that stepped aside returns. */
void folder_abandon(const char *out, uint64_t step);

/* The newest checkpoint of `out`. TW_ERROR_IO when there is none. */
tw_status folder_latest(const char *out, char path[FOLDER_PATH]);
int folder_has_checkpoint(const char *out);

#endif
