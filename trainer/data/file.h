/* file.h - whole files in memory, packed by gzip or not, and what tells lists of files apart. For the
 * layers that read data. */
#ifndef TRAINER_DATA_FILE_H
#define TRAINER_DATA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

enum { FILE_NAME_MOST = 64, FILE_PATH_MOST = 4096 + FILE_NAME_MOST }; /* a name of ours; behind a folder */

/* "folder/name" into path. */
const char *file_path(char path[FILE_PATH_MOST], const char *folder, const char *name);
bool file_exists(const char *folder, const char *name);

/* Reads the file into *bytes, for free(); one that gzip made is unpacked. The buffer grows with what really comes, up
 * to 2 GiB. TW_ERROR_IO when it cannot be read, TW_ERROR_FORMAT when it is empty, too large, or packed and damaged. */
tw_status file_read(const char *path, uint8_t **bytes, size_t *size);
/* The same, up to `most` bytes. */
tw_status file_read_up_to(const char *path, size_t most, uint8_t **bytes, size_t *size);

/* Adds the file's size to a sum, by which lists of files are told apart; a file that is not there counts as well. NULL
 * is none. `reads`: and what it holds, in four places of 4 KiB each, or in all where it is no larger than those. */
uint32_t file_sum(uint32_t sum, const char *path, bool reads);
/* Whether a file is one of those that are read for the sum of a list: 10,000 at the same distance, or all where there
 * are no more. */
bool file_is_sampled(size_t index, size_t count);

#endif
