/* image_reader.h - single files as images, for networks that are used. */
#ifndef TRAINER_IMAGE_READER_H
#define TRAINER_IMAGE_READER_H

#include <stddef.h>
#include <thinwire/thinwire.h>

/* What a network takes: one channel (grey) or three, and how its training images were normalised. */
typedef struct image_form {
    size_t channels, height, width;
    float mean[3], deviation[3];
} image_form;

typedef struct image_reader image_reader;

tw_status image_reader_create(const image_form *form, image_reader **out);
void image_reader_destroy(image_reader *reader); /* NULL is none */

/* Reads a JPEG or PNG as a test picture of training is: the largest part in its middle, at the network's size. A file
 * that cannot be read is TW_ERROR_IO or TW_ERROR_FORMAT, with a line that names it. */
tw_status image_reader_read(image_reader *reader, const char *path, float *image);

#endif
