/* beam.h - prefix beam search: the most likely spelling, where greedy decoding finds the most likely path.
 *
 * Many paths spell the same labels, and their probabilities add up. Frame by frame the search keeps the `width`
 * prefixes that are most likely so far, each with the probability of its paths that end in a blank and of those that do
 * not (Graves and Jaitly, ICML 2014; Hannun et al. 2014). A width no smaller than the number of prefixes makes it
 * exact. */
#ifndef TRAINER_BEAM_H
#define TRAINER_BEAM_H

#include "utterance.h"
#include <stdint.h>
#include <thinwire/thinwire.h>

typedef struct beam beam;

/* What a search found. */
typedef struct beam_result {
    size_t count;           /* of labels */
    double log_probability; /* of the paths that were followed, in nats: at most what all of them have */
} beam_result;

/* The memory for utterances of at most `frames` frames. No other call allocates. */
tw_status beam_create(size_t frames, size_t labels, size_t width, beam **out);
void beam_destroy(beam *b);

/* `bonus` is added to a prefix's log-probability for each of its labels, which makes up for the shortness that a
 * product of probabilities prefers; 0 for none. `dst` has room for u->frames labels. The same logits give the same
 * labels: of equals the prefix that stays as it is comes first, then the extensions of the better one, the smaller
 * label first. TW_ERROR_ARGUMENT: more frames than there is room for, or another number of labels. */
tw_status beam_search(beam *b, const utterance *u, double bonus, uint32_t *dst, beam_result *result);

#endif
