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

/* Which of a state's tensors have the names of these: known[i] becomes true for its number i. There is room for one
 * more than the state has. */
void shape_mark(const tw_state *state, const tw_tensor *tensors, size_t count, bool *known);

#endif
