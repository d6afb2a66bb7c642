/* layout.h - tables of tensors without a model: what a network would exchange, where only bytes and time matter. */
#ifndef TRAINER_LAYOUT_H
#define TRAINER_LAYOUT_H

#include <thinwire/thinwire.h>

enum { LAYOUT_NAME = 24 };

typedef struct layout {
    tw_tensor *tensors;
    size_t count, elements;
    char (*names)[LAYOUT_NAME];
} layout;

/* Reads "resnet50", or a number of parameters such as "426122", "250k" or "25.6M", which are laid out as square layers
 * of a million at most, each with a bias. TW_ERROR_ARGUMENT says what is known. */
tw_status layout_create(const char *text, layout *t);
void layout_release(layout *t);

#endif
