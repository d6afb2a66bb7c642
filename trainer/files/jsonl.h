/* jsonl.h - JSON lines: one object a line, flushed line by line. */
#ifndef TRAINER_JSONL_H
#define TRAINER_JSONL_H

#include <cJSON.h>
#include <thinwire/thinwire.h>

typedef struct jsonl jsonl;

/* Opens `path` for appending; a line that was not written to its end goes. */
tw_status jsonl_open(const char *path, jsonl **out);
void jsonl_close(jsonl *file);
/* Writes `line` and deletes it. Numbers that are not finite come out as null. TW_ERROR_IO also when the file is no
 * longer where it was opened: then nobody would find what is written. */
tw_status jsonl_write(jsonl *file, cJSON *line);
/* Whether the file is still there. */
tw_status jsonl_check(const jsonl *file);

#endif
