/* json_file.h - JSON objects as files, for what scripts read. */
#ifndef TRAINER_JSON_FILE_H
#define TRAINER_JSON_FILE_H

#include <cJSON.h>
#include <stdio.h>
#include <thinwire/thinwire.h>

/* Writes an object to the file `path`, whole or not at all; "-" is standard output. TW_ERROR_ARGUMENT where it would
 * take the place of what is no JSON. */
tw_status json_write(const char *path, const cJSON *object);

/* The object in a file, to be deleted. TW_ERROR_IO, TW_ERROR_FORMAT: the text names the file. */
tw_status json_read(const char *path, cJSON **object);

/* Whether json_write could write to `path`, known before a long run and not after it. A pipe that nobody reads is
 * refused. */
tw_status json_check(const char *path);

/* Where a program whose JSON goes to `path` (may be NULL) tells the rest: not into the JSON. */
FILE *json_beside(const char *path);

#endif
