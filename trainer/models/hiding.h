/* hiding.h - what is hidden of a step's crops, and the random numbers of that step. All of it is a function of seed,
 * step, the crop's number and the row in it: not of the worker, nor of how a batch is cut. */
#ifndef MODEL_HIDING_H
#define MODEL_HIDING_H

#include "dropout.h"
#include "error.h"
#include "rows.h"

/* Kinds of draws, each with numbers of its own. */
typedef enum hiding_kind { HIDING_SPANS, HIDING_FILL, HIDING_GUMBEL, HIDING_DISTRACTORS } hiding_kind;

/* A stream of random words: of a crop in a step. step below 2^36, crop below 2^20. */
uint64_t hiding_stream(const nn_noise *draws, hiding_kind kind, uint64_t crop);

/* The hidden rows of a batch, packed crop by crop. All zero: none yet. */
typedef struct hiding {
    size_t count;
    nn_rows crops; /* where each crop's begin, in the list */
    size_t *rows;  /* (count): their numbers in the batch */
    size_t *first;
    unsigned char *flags;
    size_t row_capacity, crop_capacity;
} hiding;

/* A span of `span` rows begins at a row with `probability`; spans may overlap, and end with their crop. `crops` are the
 * crops' numbers. */
tw_status hiding_draw(hiding *h, const nn_rows *rows, const uint64_t *crops, const nn_noise *draws, double probability,
                      size_t span);
void hiding_free(hiding *h);

/* The hidden of `width` values a row, one after the other. */
void hiding_gather(const hiding *h, const float *rows, size_t width, float *gathered);
/* Adds each to the row it came from. */
void hiding_add(const hiding *h, const float *gathered, size_t width, float *rows);
/* Overwrites the hidden rows with numbers between -range and range, or with `fill` if there is one. */
void hiding_cover(const hiding *h, const nn_rows *rows, const uint64_t *crops, const nn_noise *draws, float range,
                  const float *fill, size_t width, float *values);

#endif
