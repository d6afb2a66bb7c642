/* layout.h - tables of tensors without a model: what a network would exchange, where only bytes and time matter. */
#ifndef TRAINER_LAYOUT_H
#define TRAINER_LAYOUT_H

#include <thinwire/thinwire.h>

enum { LAYOUT_NAME = 128 };

/* Of --parameters. */
#define LAYOUT_HELP                                                                                                    \
    "The parameters of a network without data: a number such as 25.6M, resnet50, gpt2, or a file with a line for "     \
    "each "                                                                                                            \
    "tensor, its name and its dimensions"

typedef struct layout {
    tw_tensor *tensors;
    size_t count, elements;
    char (*names)[LAYOUT_NAME];
} layout;

/* Reads "resnet50", "gpt2", a number of parameters such as "426122", "250k" or "25.6M", which are laid out as square
 * layers of a million at most, each with a bias, or a file whose lines are each a tensor's name and dimensions:
 * "fc.weight 1000 2048". TW_ERROR_ARGUMENT says what is known; TW_ERROR_IO and TW_ERROR_FORMAT name the file. */
tw_status layout_create(const char *text, layout *t);
/* Of a network that there is. */
tw_status layout_copy(const tw_tensor *tensors, size_t count, layout *t);
/* By hand: room for `count` tensors in a layout of zeros, and one more, named by its kind and place: "piece0". */
tw_status layout_reserve(size_t count, layout *t);
void layout_add(layout *t, const char *kind, size_t dims, const size_t *shape);
void layout_release(layout *t);

#endif
