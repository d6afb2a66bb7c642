/* token_ids.h - a text whose tokens somebody has numbered already. */
#ifndef TRAINER_TOKEN_IDS_H
#define TRAINER_TOKEN_IDS_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

/* Reads an array of one dimension that numpy.save wrote, of uint8, uint16, uint32, int32 or int64, into *ids, for
 * free(). TW_ERROR_FORMAT names the file: it is none, it is empty, a number of it is not below `types`. */
tw_status token_ids_read(const char *path, size_t types, uint32_t **ids, size_t *count);

#endif
