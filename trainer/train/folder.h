/* folder.h - the folders of a run's checkpoints: <out>/checkpoints/step-00001234/.
 *
 * A checkpoint is written into step-N.partial/ and renamed when every rank has written its part, so a folder step-N is
 * always whole. So is step-N.replaced/, one that stepped aside for another of its step; it goes once that is there.
 * Ranks may share a file system or have one each: every rank calls each function, and finds done what another did
 * before it.
 */
#ifndef TRAINER_FOLDER_H
#define TRAINER_FOLDER_H

#include <thinwire/thinwire.h>

#define FOLDER_PATH 4096

/* Makes a folder and those above it. */
tw_status folder_make(const char *path);

/* Makes a run's folder; TW_ERROR_ARGUMENT when its name leaves no room for those of checkpoints in it. */
tw_status folder_open(const char *out);

/* Makes step-N.partial/ and writes its path. An older checkpoint of the same step steps aside. */
tw_status folder_begin(const char *out, uint64_t step, char partial[FOLDER_PATH]);
/* Renames it to step-N/, then removes all checkpoints but it and the one before, and what runs that were killed left
 * behind. Later checkpoints go too: the run has been resumed from before them, and takes another course. */
tw_status folder_publish(const char *out, uint64_t step);
/* Removes step-N.partial/, because the checkpoint failed; one that stepped aside returns. */
void folder_abandon(const char *out, uint64_t step);

/* A folder named step-N is a checkpoint; any other name stands for a run's folder. */
int folder_names_checkpoint(const char *path);
/* The checkpoint that `path` names, or the newest in the run's folder it names. TW_ERROR_IO when there is none. */
tw_status folder_find(const char *path, char checkpoint[FOLDER_PATH]);
/* Whether `checkpoint` stands in <out>/checkpoints/. */
int folder_owns(const char *out, const char *checkpoint);
int folder_has_checkpoint(const char *out);

#endif
