/* cross_entropy.h - softmax over classes, and the loss of predicting one of them: an image's, or one at every step of a
 * sequence. */
#ifndef NN_CROSS_ENTROPY_H
#define NN_CROSS_ENTROPY_H

#include <stddef.h>
#include <stdint.h>

enum { NN_NO_TARGET = -1 };

typedef struct nn_loss {
    double sum;     /* of -ln softmax(logits)[target] over the rows that have a target */
    size_t counted; /* those rows */
    size_t correct; /* of them, those whose largest logit (the first of equals) is the target's */
} nn_loss;

/* logits: (count, classes); targets[i] < classes, or NN_NO_TARGET. `gradient`, unless NULL, receives the gradient of
 * the MEAN loss over the counted rows, 0 in the others; it may be the logits' own array. */
nn_loss nn_cross_entropy(const float *logits, const int32_t *targets, size_t count, size_t classes, float *gradient);

/* Softmax of (count, classes) logits: for those who read the numbers, so each row's sum is 1 to a double's last bits.
 */
void nn_probabilities(const float *logits, size_t count, size_t classes, double *probabilities);

/* Each row, in place, to the logarithms of its softmax. */
void nn_log_softmax(float *rows, size_t count, size_t classes);

#endif
