/* tensorboard.h - scalars in TensorBoard's event file format, append-only, flushed record by record. */
#ifndef TRAINER_TENSORBOARD_H
#define TRAINER_TENSORBOARD_H

#include <thinwire/thinwire.h>

typedef struct tensorboard tensorboard;

/* Starts a new event file in `folder`. */
tw_status tensorboard_open(const char *folder, tensorboard **out);
void tensorboard_close(tensorboard *board);
tw_status tensorboard_scalar(tensorboard *board, const char *tag, uint64_t step, float value);

/* The records themselves, for tests: written to dst, the length returned. `tag` has at most 100 bytes. */
#define TENSORBOARD_RECORD_MAX 192
size_t tensorboard_version_record(double wall_time, uint8_t dst[TENSORBOARD_RECORD_MAX]);
size_t tensorboard_scalar_record(double wall_time, uint64_t step, const char *tag, float value,
                                 uint8_t dst[TENSORBOARD_RECORD_MAX]);

#endif
