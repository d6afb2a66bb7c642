/* checksum.h - the checksums of a checkpoint's file, which safetensors lacks: over its tensors, and over its texts,
 * that of the tensors among them. */
#ifndef TRAINER_CHECKSUM_H
#define TRAINER_CHECKSUM_H

#include <thinwire/thinwire.h>

enum { CHECKSUM_TEXT = 16 }; /* room for a checksum as text */

/* Of one tensor. Those of a file's tensors are added up, so that their order does not matter. */
uint32_t checksum_tensor(const char *name, const void *values, size_t bytes);
/* After the last tensor and the last text. */
tw_status checksum_put(tw_state *state);
/* The checksum of the texts, and so of all there is; NULL in files of the first versions. */
const char *checksum_sum(const tw_state *state);
/* Loads a file that has one. TW_ERROR_FORMAT when it is none, or when it is damaged. */
tw_status checksum_load(const char *path, tw_state **out);

#endif
