/* cross_entropy.c - softmax and cross-entropy together: ln(sum exp) - logit, with the maximum taken out first. */
#include "cross_entropy.h"

#include <math.h>

static size_t largest(const float *values, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (values[i] > values[best]) best = i;
    return best;
}

static double exponential_sum(const float *logits, size_t classes, float maximum)
{
    double sum = 0.0;
    for (size_t i = 0; i < classes; i++) sum += exp((double)logits[i] - maximum);
    return sum;
}

static void write_gradient(const float *logits, size_t label, size_t classes, double log_sum, double weight,
                           float *gradient)
{
    for (size_t i = 0; i < classes; i++) {
        double probability = exp(logits[i] - log_sum);
        gradient[i] = (float)(weight * (probability - (i == label)));
    }
}

nn_loss nn_cross_entropy(const float *logits, const uint8_t *labels, size_t count, size_t classes, float *gradient)
{
    nn_loss loss = {0};
    for (size_t n = 0; n < count; n++, logits += classes) {
        size_t best = largest(logits, classes);
        double log_sum = logits[best] + log(exponential_sum(logits, classes, logits[best]));
        loss.sum += log_sum - logits[labels[n]];
        loss.correct += best == labels[n];
        if (gradient) write_gradient(logits, labels[n], classes, log_sum, 1.0 / (double)count, gradient + n * classes);
    }
    return loss;
}
