/* speech_crops.h - pieces of equal length out of what each speaker says, for learning without transcripts.
 *
 * Many utterances are shorter than a piece that is worth learning from. So a speaker's are joined, in an order that is
 * drawn anew for every epoch, and the row of them is cut into crops; what is left at its end rests. A crop is of one
 * speaker. How many there are does not depend on the order. */
#ifndef TRAINER_SPEECH_SPEECH_CROPS_H
#define TRAINER_SPEECH_SPEECH_CROPS_H

#include "speech_data.h"

typedef struct speech_crops {
    const speech_set *set; /* borrowed */
    size_t frames;         /* of a crop */
    size_t count;
    size_t speakers;
    size_t short_speakers; /* of them, those who have no whole crop */
    uint32_t *speaker;     /* of each item */
    size_t *first_item;    /* (speakers + 1): where each one's items begin, when they stand together */
    size_t *first_crop;    /* (speakers + 1) */
} speech_crops;

/* Finds the crops of `set`, which was loaded from `list`. TW_ERROR_ARGUMENT where there is none, with what the longest
 * speaker has; `option` is what a person sets a crop's length with. */
tw_status speech_crops_find(const speech_set *set, const speech_list *list, size_t frames, const char *option,
                            speech_crops *crops);
void speech_crops_release(speech_crops *crops);

/* One epoch's order; begin with all zeros. */
typedef struct crop_order {
    uint32_t *items;    /* speaker by speaker, each one's as they are joined */
    uint32_t *crops;    /* as they are met */
    uint32_t *shuffled; /* for building it, as is the next */
    size_t *filled;
} crop_order;

tw_status crop_order_create(const speech_crops *crops, crop_order *order);
void crop_order_release(crop_order *order);
/* A function of (seed, epoch) and the data alone. */
void crop_order_shuffle(const speech_crops *crops, uint64_t seed, uint64_t epoch, crop_order *order);
/* As the corpus has them. */
void crop_order_plain(const speech_crops *crops, crop_order *order);

/* Copies crop order->crops[at]: rows (frames, set->width). */
void speech_crops_copy(const speech_crops *crops, const crop_order *order, size_t at, float *rows);

#endif
