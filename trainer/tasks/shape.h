/* shape.h - a tensor of a file beside the one that a network has. */
#ifndef TRAINER_TASKS_SHAPE_H
#define TRAINER_TASKS_SHAPE_H

#include <stdbool.h>
#include <thinwire/thinwire.h>

enum { SHAPE_TEXT = 96 };
/* "32x16"; "1" where there are no dimensions. Returns `text`. */
const char *shape_text(size_t dims, const size_t *shape, char text[SHAPE_TEXT]);

/* Of the tensor's shape, in fp32. */
bool shape_fits(const tw_tensor *tensor, const tw_state_entry *entry);

/* The index of the tensor of this name; `count` where there is none. */
size_t shape_find(const tw_tensor *tensors, size_t count, const char *name);

#endif
