/* edit_distance.h - how far what was recognised is from what was said: Levenshtein's distance, and the error rates made
 * of it.
 *
 * Of all alignments with the fewest edits, that with the most correct tokens is counted; its numbers of substitutions,
 * insertions and deletions are then determined too. */
#ifndef TRAINER_EDIT_DISTANCE_H
#define TRAINER_EDIT_DISTANCE_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

/* The reference has correct + substitutions + deletions tokens. Whole numbers: a sum over utterances and workers does
 * not depend on how they were spread. */
typedef struct edit_counts {
    uint64_t correct, substitutions, insertions, deletions;
} edit_counts;

/* Tokens are any numbers that are equal where the tokens are: labels, code points. Adds to *sum, as the others do, and
 * only on success. TW_ERROR_MEMORY is the one failure. */
tw_status edit_tokens(const uint32_t *reference, size_t reference_count, const uint32_t *hypothesis,
                      size_t hypothesis_count, edit_counts *sum);

/* Words are what white space (ASCII) separates. */
tw_status edit_words(const char *reference, const char *hypothesis, edit_counts *sum);

/* Characters are UTF-8's code points; a byte that is no part of one is a character of its own. One space between words
 * is a character, more than one and those around the text are not. */
tw_status edit_characters(const char *reference, const char *hypothesis, edit_counts *sum);

void edit_add(edit_counts *sum, const edit_counts *more);

/* (substitutions + insertions + deletions) / the reference's tokens: the word or character error rate, 1 for 100 %. It
 * may exceed 1. Of an empty reference 0 without insertions, else infinity. */
double edit_rate(const edit_counts *counts);

#endif
