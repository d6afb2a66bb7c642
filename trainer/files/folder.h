/* folder.h - the folders of a run's checkpoints: <out>/checkpoints/step-00001234/.
 *
 * Whoever finds the folders after a kill, at whatever system call, can tell what each of them is by its name, because a
 * checkpoint gets and loses its name in one rename:
 *
 *     step-N            whole: all ranks had written their files when it got this name
 *     step-N.replaced   whole: it steps aside for another of its step, and counts until that one has its name
 *     step-N.partial    being written, or left by a run that was killed while it wrote
 *     step-N.removed    given up or old: being deleted. It never counts
 *
 * A run that goes on from an older checkpoint takes another course than the one that wrote the later checkpoints. It
 * renames those away, and then publishes its own. So --resume continues the old course until the new one is all that is
 * left.
 *
 * Ranks may share a file system or have one each: every rank calls each function, and finds done what another did
 * before it. Between two of these functions all ranks have to meet.
 */
#ifndef TRAINER_FOLDER_H
#define TRAINER_FOLDER_H

#include <thinwire/thinwire.h>

#define FOLDER_PATH 4096
/* A path in a checkpoint's folder. */
#define CHECKPOINT_PATH (FOLDER_PATH + 512)
/* What the name of a checkpoint's folder ends in while it grows. */
#define FOLDER_PARTIAL ".partial"

/* Makes a folder and those above it. */
tw_status folder_make(const char *path);

/* Makes the first of runs/NAME-1, runs/NAME-2, ... that is not there, under the working folder. Of several that do so
 * at once each gets one of its own. */
tw_status folder_choose(const char *name, char *out, size_t room);
/* TW_ERROR_PACKET: that is none of them, and no folder in which rank 0 may have others write. */
tw_status folder_check_chosen(const char *name, const char *out);

/* Makes a run's folder; TW_ERROR_ARGUMENT when its name leaves no room for those of checkpoints in it. */
tw_status folder_open(const char *out);

/* The four steps of a checkpoint. First: finishes what a killed run left half done, makes step-N.partial/ without
 * files, and writes its path. */
tw_status folder_begin(const char *out, uint64_t step, char partial[FOLDER_PATH]);
/* Second, when all files are written: an older checkpoint of the same step steps aside. Where there are later ones, it
 * is given up with them. */
tw_status folder_give_way(const char *out, uint64_t step);
/* Third: renames step-N.partial/ to step-N/, then removes the checkpoints of steps below `kept` but that of step `best`
 * (0: none), and what stepped aside or was given up. */
tw_status folder_publish(const char *out, uint64_t step, uint64_t kept, uint64_t best);
/* Before the second, for one rank on each disk: the checkpoint of step `from` is called that of step `to`, and one that
 * is called so is given up. None of step `from` need be there. */
tw_status folder_rename(const char *out, uint64_t from, uint64_t to);
/* Instead of the third, because a rank failed: removes step-N.partial/; one that stepped aside returns. */
void folder_abandon(const char *out, uint64_t step);

/* The step of the newest whole checkpoint before `step`; `step` itself where there is none. For rank 0, whose files
 * decide. */
uint64_t folder_kept(const char *out, uint64_t step);
/* Whether there is one of that step, with a model file, and its path. For rank 0. */
int folder_holds(const char *out, uint64_t step, char checkpoint[FOLDER_PATH]);
/* Whether there is a whole one at all. */
int folder_has_checkpoint(const char *out);

/* The files of a checkpoint. */
const char *folder_model(const char *folder, char path[CHECKPOINT_PATH]);
const char *folder_worker(const char *folder, int rank, char path[CHECKPOINT_PATH]);

/* A folder named step-N is a checkpoint; any other name stands for a run's folder. */
int folder_names_checkpoint(const char *path);
/* The checkpoint that `path` names; or, of the run's folder it names, the newest but `newer`. Whether its files are
 * there is not asked. TW_ERROR_IO when there is none. */
tw_status folder_find(const char *path, size_t newer, char checkpoint[FOLDER_PATH]);
/* The step in a checkpoint's name. */
uint64_t folder_step(const char *checkpoint);
/* Where a rank has the checkpoint that another calls so, of the run or the checkpoint at `path`; it need not be there.
 */
tw_status folder_same(const char *path, uint64_t step, char checkpoint[FOLDER_PATH]);
/* Whether `checkpoint` stands in <out>/checkpoints/. */
int folder_owns(const char *out, const char *checkpoint);

#endif
