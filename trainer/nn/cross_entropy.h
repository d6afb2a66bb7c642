/* cross_entropy.h - the loss of a classifier. */
#ifndef NN_CROSS_ENTROPY_H
#define NN_CROSS_ENTROPY_H

#include <stddef.h>
#include <stdint.h>

typedef struct nn_loss {
    double sum;     /* of -ln softmax(logits)[label] over the images */
    size_t correct; /* images whose largest logit (the first of equals) is their label's */
} nn_loss;

/* logits: (count, classes); labels[i] < classes. `gradient`, unless NULL, receives the gradient of the MEAN loss with
 * respect to the logits. */
nn_loss nn_cross_entropy(const float *logits, const uint8_t *labels, size_t count, size_t classes, float *gradient);

#endif
