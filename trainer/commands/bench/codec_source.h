/* codec_source.h - the gradients that `thinwire bench codec` compresses: made up for a table of tensors, or kept by
 * `thinwire train --dump-gradients`. */
#ifndef TRAINER_CODEC_SOURCE_H
#define TRAINER_CODEC_SOURCE_H

#include "layout.h"

typedef struct codec_source {
    tw_tensor *tensors;
    size_t count;    /* of tensors */
    size_t elements; /* of all of them */
    size_t steps;    /* kept by a training run; 0: made up, no two steps alike */

    layout table;        /* of tensors made up */
    float *values;       /* made up: a step is a window on them */
    size_t *offset;      /* of each tensor in them */
    tw_state **captured; /* one a step */
} codec_source;

/* `count` elements in `pieces` matrices, as nearly square as their numbers of elements divide; one row where the
 * sides would be too unlike. */
tw_status codec_source_flat(size_t count, size_t pieces, codec_source *source);
/* The tensors of ResNet-50 for ImageNet (He et al. 2015, bottleneck blocks): 25,557,032 elements. */
tw_status codec_source_resnet50(codec_source *source);
/* A file of gradients, or a folder of such files, of which each is a step. All tensors must be F32 and the same ones in
 * every file. TW_ERROR_IO, TW_ERROR_FORMAT name the file. */
tw_status codec_source_load(const char *path, codec_source *source);
/* Frees what any of them made; {0} is fine. */
void codec_source_release(codec_source *source);

/* Floats that a tensor takes where each begins on a cache line of its own. */
size_t codec_source_room(const tw_tensor *tensor);

/* Writes tensor `tensor`'s gradient of a step; kept steps follow each other around and around. */
void codec_source_copy(const codec_source *source, size_t tensor, size_t step, float *dst);

#endif
