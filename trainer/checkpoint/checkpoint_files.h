/* checkpoint_files.h - which files of a checkpoint there are, and on whose disk. Machines have disks of their own: each
 * has the model file and its own workers' files, and a machine that is new has none. What somebody lacks it gets from a
 * rank that has it, and keeps. What nobody has is lost. All functions are called by all ranks. */
#ifndef TRAINER_CHECKPOINT_FILES_H
#define TRAINER_CHECKPOINT_FILES_H

#include "worker.h"

typedef struct checkpoint_files {
    const char *folder; /* the checkpoint's, on this rank's disk; borrowed */
    int workers;        /* whose files there once were */
    int lost;           /* how many of them nobody has */
    int first_lost;
    int *holders;     /* of each the first rank that has it; -1: nobody */
    int is_scattered; /* some rank lacks one that another has, or the model file */
} checkpoint_files;

/* Every rank looks what is in its folder. Rank 0 has the model file. */
tw_status checkpoint_files_look(worker *w, const char *folder, int workers, checkpoint_files *files);
void checkpoint_files_release(checkpoint_files *files);

/* Sends every file that is not lost to those disks that lack it. */
tw_status checkpoint_files_share(worker *w, const checkpoint_files *files);

/* The old worker whose file a rank takes where each has one of its own: those that are left move up. -1: none is left
 * for it. */
int checkpoint_files_of(const checkpoint_files *files, int rank);

/* "worker 1", "workers 0, 2 and 5", for those whose files are lost. */
void checkpoint_files_name_lost(const checkpoint_files *files, char *text, size_t room);

#endif
