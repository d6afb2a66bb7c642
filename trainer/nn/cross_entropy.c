/* cross_entropy.c - one row at a time, which stays in the cache between its maximum, its sum and its gradient. */
#include "cross_entropy.h"

#include "wide.h"

enum { LANES = 32 }; /* running values side by side: the order of a sum is fixed, and a vector unit can follow it */

NN_WIDE static float largest(const float *values, size_t count)
{
    float lanes[LANES];
    size_t i = 0;
    for (size_t k = 0; k < LANES; k++) lanes[k] = values[0];
    for (; i + LANES <= count; i += LANES)
        for (size_t k = 0; k < LANES; k++) lanes[k] = values[i + k] > lanes[k] ? values[i + k] : lanes[k];
    for (; i < count; i++) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
    for (size_t k = 1; k < LANES; k++) lanes[0] = lanes[k] > lanes[0] ? lanes[k] : lanes[0];
    return lanes[0];
}

/* of e^(value - maximum) */
NN_WIDE static double exponential_sum(const float *values, size_t count, float maximum)
{
    float lanes[LANES] = {0};
    double sum = 0.0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t k = 0; k < LANES; k++) lanes[k] += nn_exp(values[i + k] - maximum);
    for (; i < count; i++) sum += nn_exp(values[i] - maximum);
    for (size_t k = 0; k < LANES; k++) sum += lanes[k];
    return sum;
}

static double log_sum(const float *row, size_t classes, float *maximum)
{
    *maximum = largest(row, classes);
    return *maximum + log(exponential_sum(row, classes, *maximum));
}

/* In two subtractions, since a float cannot hold the logarithm of the sum to the last bit beside a large maximum. */
NN_WIDE static void weigh(float *row, size_t classes, float maximum, float rest, float weight)
{
    for (size_t i = 0; i < classes; i++) row[i] = weight * nn_exp(row[i] - maximum - rest);
}

static int is_first_largest(const float *row, size_t target, float maximum)
{
    for (size_t i = 0; i < target; i++)
        if (row[i] == maximum) return 0;
    return row[target] == maximum;
}

static size_t count_targets(const int32_t *targets, size_t count)
{
    size_t counted = 0;
    for (size_t i = 0; i < count; i++) counted += targets[i] != NN_NO_TARGET;
    return counted;
}

/* One row's loss, added to `loss`; `gradient` may be the row. */
static void add_row(const float *row, int32_t target, size_t classes, float weight, nn_loss *loss, float *gradient)
{
    float maximum;
    double sum = log_sum(row, classes, &maximum);
    loss->sum += sum - row[target];
    loss->correct += (size_t)is_first_largest(row, (size_t)target, maximum);
    if (!gradient) return;
    if (gradient != row) memcpy(gradient, row, classes * sizeof *gradient);
    weigh(gradient, classes, maximum, (float)(sum - maximum), weight);
    gradient[target] -= weight;
}

nn_loss nn_cross_entropy(const float *logits, const int32_t *targets, size_t count, size_t classes, float *gradient)
{
    nn_loss loss = {.counted = count_targets(targets, count)};
    float weight = loss.counted ? 1.0f / (float)loss.counted : 0.0f;
    for (size_t i = 0; i < count; i++) {
        float *row_gradient = gradient ? gradient + i * classes : NULL;
        if (targets[i] != NN_NO_TARGET)
            add_row(logits + i * classes, targets[i], classes, weight, &loss, row_gradient);
        else if (gradient)
            memset(row_gradient, 0, classes * sizeof *row_gradient);
    }
    return loss;
}

void nn_probabilities(const float *logits, size_t count, size_t classes, double *probabilities)
{
    for (size_t i = 0; i < count; i++, logits += classes, probabilities += classes) {
        double maximum = largest(logits, classes), sum = 0.0;
        for (size_t k = 0; k < classes; k++) sum += probabilities[k] = exp(logits[k] - maximum);
        for (size_t k = 0; k < classes; k++) probabilities[k] /= sum;
    }
}

void nn_log_softmax(float *rows, size_t count, size_t classes)
{
    for (size_t i = 0; i < count; i++, rows += classes) {
        float maximum;
        double sum = log_sum(rows, classes, &maximum);
        for (size_t k = 0; k < classes; k++) rows[k] = (float)(rows[k] - sum);
    }
}
