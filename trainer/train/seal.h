/* seal.h - the checksums of a checkpoint's file, which safetensors lacks: over its tensors, and over its texts, that of
 * the tensors among them. */
#ifndef TRAINER_SEAL_H
#define TRAINER_SEAL_H

#include <thinwire/thinwire.h>

enum { SEAL_SUM = 16 }; /* room for a checksum as text */

/* After the last tensor and the last text. */
tw_status seal_put(tw_state *state);
/* The checksum of the texts, and so of all there is; NULL in files of the first versions. */
const char *seal_sum(const tw_state *state);
/* Loads a file that was sealed. TW_ERROR_FORMAT when it is none, or when it is damaged. */
tw_status seal_load(const char *path, tw_state **out);

#endif
