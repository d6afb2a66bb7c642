/* file_memory.h - the library's large blocks on a disk: what a checkpoint holds on its way to or from its file, where
 * weights are paged. The system keeps of it in its cache of files what it has room for. */
#ifndef TRAINER_FILE_MEMORY_H
#define TRAINER_FILE_MEMORY_H

/* From now on all may be larger than the memory: pages_leave_unreserved, and file_memory_use can be called. Before the
 * library is called first, and before there are threads; later it has no effect. */
void file_memory_install(void);
/* From now on large blocks lie in files without a name in that folder. NULL: in memory, as before. */
void file_memory_use(const char *folder);

#endif
