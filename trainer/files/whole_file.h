/* whole_file.h - a file that is written whole, or not at all: the old one stays until then, since half of a file may be
 * read as another file. */
#ifndef TRAINER_WHOLE_FILE_H
#define TRAINER_WHOLE_FILE_H

#include <stdio.h>
#include <thinwire/thinwire.h>

/* Whether a file may take the place of what is at `path`: nothing, an empty file, or one that begins with `begins`, so
 * that a slip of the hand costs nobody a file. TW_ERROR_ARGUMENT says that it is no `what`. */
tw_status whole_file_may_replace(const char *path, const char *begins, const char *what);

/* Has `write` write to a file beside `path`, which then takes its place. */
tw_status whole_file_write(const char *path, tw_status (*write)(void *context, FILE *file), void *context);

/* Has what was written outlast a power cut that comes after a rename, which else may leave an empty file. Anything but
 * 0: it failed, and errno says why. Some file systems cannot sync: no failure of ours. */
int whole_file_keep(FILE *file);

/* "PATH could not be written: ...", with the reason in errno. TW_ERROR_IO. */
tw_status file_could_not(const char *path, const char *what);

#endif
