/* select.h - the k largest of n magnitudes, exactly, in one pass over memory.
 *
 * A threshold that the step before or a few samples suggest lets through somewhat more than k candidates; they are
 * collected by the very pass that updates the values, and the exact k are chosen among them. Whatever the guess, the
 * result is exact: too low a threshold and the candidates are pruned to k as their room fills, which raises it; too
 * high, and the values are read once more. Zeros are never selected; among equal magnitudes the lower index wins. */
#ifndef TW_SELECT_H
#define TW_SELECT_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

/* Where the values come from. */
typedef struct tw_select_source {
    void *context;
    /* Updates elements first .. first+n and lists those whose new magnitude is above the threshold, as the kernels'
     * select does. Called once for each element, in order, for a multiple of 64 of them but at the end. */
    size_t (*pass)(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value);
    /* (optional: the first threshold is then not sampled) Writes to dst what elements first .. first+n will be after
     * their pass, without changing them. */
    void (*peek)(void *context, size_t first, size_t n, float *dst);
    /* Lists as pass does, and changes nothing, after the pass; used where a threshold was guessed: with peek or a hint.
     */
    size_t (*look)(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value);
} tw_select_source;

/* Values that are all there: nothing is updated on the way. */
tw_select_source tw_select_from(float *values);

/* What selecting from a tensor taught for the next time, one step later: k-th magnitudes change slowly. Speed depends
 * on it, never the result. All zero to begin with. */
typedef struct tw_select_hint {
    size_t k;
    float least;          /* of the k selected; 0 if fewer than k were */
    float ratio;          /* of that to the step's before it */
    float growth, margin; /* the threshold tried next, as a part of `least`, is their product */
} tw_select_hint;

enum { TW_SELECT_ROOM = 8192 }; /* candidates that always fit behind those that a prune leaves */

/* Scratch of a selection; serves one tensor after the other. */
typedef struct tw_selector {
    tw_select_hint *hint; /* of the tensor about to be selected from; NULL: none */
    size_t capacity;      /* candidates there is room for */
    uint32_t *index;
    float *value;
    float *sample;        /* scratch of the guess */
    uint32_t *magnitude;  /* scratch of the exact choice */
    size_t count, wanted; /* candidates held, and to be kept of them */
    size_t listed;        /* candidates that passed in this sweep, pruned ones too */
    float threshold;
} tw_selector;

/* Room to select up to k of n, for the largest n and k it will see. */
tw_status tw_selector_create(tw_selector *selector, size_t n, size_t k);
void tw_selector_destroy(tw_selector *selector);

/* Runs the source over n elements and writes the k of largest magnitude (fewer if fewer are not zero), indices
 * ascending, to index and value. Returns how many. */
size_t tw_select_top(tw_selector *selector, const tw_select_source *source, size_t n, size_t k, uint32_t *index,
                     float *value);

/* The same among the magnitudes above `floor` alone. */
size_t tw_select_above(tw_selector *selector, const tw_select_source *source, size_t n, size_t k, float floor,
                       uint32_t *index, float *value);

/* The two below are for a pass of the caller's own, which sets count to 0 and wanted, and lists candidates, none of
 * them zero, behind those held. */
/* Keeps the `wanted` largest candidates, in their order, and raises the threshold to the least of them. */
void tw_select_prune(tw_selector *selector);
/* Does so, and writes them to index and value. Returns how many. */
size_t tw_select_hand_over(tw_selector *selector, uint32_t *index, float *value);

/* The k-th largest magnitude among n values, k from 1 to n; n at most the k that the selector was made for. */
float tw_select_kth(tw_selector *selector, const float *value, size_t n, size_t k);

#endif
