/* Softmax and the loss against their definitions. */
#include "fixture.h"

#include "cross_entropy.h"

enum { IMAGES = 6, CLASSES = 10, ROWS = 7 };

static const int32_t labels[IMAGES] = {3, 0, 9, 9, 1, 5};

TEST(equal_logits_cost_the_logarithm_of_the_classes)
{
    const float logits[IMAGES * CLASSES] = {0};
    nn_loss loss = nn_cross_entropy(logits, labels, IMAGES, CLASSES, NULL);
    assert_near(loss.sum, IMAGES * log(CLASSES), 1e-12);
    assert_int_equal(loss.correct, 1); /* of equals the first counts: the image of class 0 */
}

TEST(gradient_is_softmax_minus_label_over_images)
{
    float *logits = random_floats(1, IMAGES * CLASSES), gradient[IMAGES * CLASSES];
    double sum = nn_cross_entropy(logits, labels, IMAGES, CLASSES, gradient).sum, expected_sum = 0.0;
    for (size_t n = 0; n < IMAGES; n++) {
        double total = 0.0, row = 0.0;
        for (size_t c = 0; c < CLASSES; c++) total += exp(logits[n * CLASSES + c]);
        for (size_t c = 0; c < CLASSES; c++) {
            double probability = exp(logits[n * CLASSES + c]) / total;
            assert_near(gradient[n * CLASSES + c], (probability - ((int32_t)c == labels[n])) / IMAGES, 1e-7);
            row += gradient[n * CLASSES + c];
        }
        assert_near(row, 0.0, 1e-7);
        expected_sum -= log(exp(logits[n * CLASSES + labels[n]]) / total);
    }
    assert_near(sum, expected_sum, 1e-5);
    free(logits);
}

static void check_softmax(size_t classes)
{
    float *logits = random_floats(classes, ROWS * classes), *gradient = random_floats(1, ROWS * classes);
    int32_t targets[ROWS];
    double expected = 0.0;
    size_t correct = 0, counted = 0;
    for (size_t i = 0; i < ROWS * classes; i++) logits[i] *= 8.0f;
    for (size_t r = 0; r < ROWS; r++) targets[r] = r == 2 ? NN_NO_TARGET : (int32_t)(r * 31 % classes);
    logits[0] = logits[classes - 1] = 9.0f; /* of equals the first counts, so row 0 is wrong unless it has one class */
    targets[0] = (int32_t)classes - 1;
    nn_loss loss = nn_cross_entropy(logits, targets, ROWS, classes, gradient);
    for (size_t r = 0; r < ROWS; r++) {
        const float *row = logits + r * classes;
        double sum = 0.0, row_sum = 0.0;
        size_t best = 0;
        for (size_t c = 0; c < classes; c++) sum += exp(row[c]);
        for (size_t c = 0; c < classes; c++) {
            double wanted = targets[r] < 0 ? 0.0 : (exp(row[c]) / sum - ((size_t)targets[r] == c)) / (ROWS - 1);
            assert_near(gradient[r * classes + c], wanted, 1e-7);
            row_sum += gradient[r * classes + c];
            if (row[c] > row[best]) best = c;
        }
        assert_near(row_sum, 0.0, 5e-7);
        if (targets[r] < 0) continue;
        expected += log(sum) - row[targets[r]];
        correct += best == (size_t)targets[r];
        counted++;
    }
    assert_near(loss.sum, expected, 2e-6 * (1.0 + expected));
    assert_int_equal(loss.correct, correct);
    assert_int_equal(loss.counted, counted);
    nn_loss in_place = nn_cross_entropy(logits, targets, ROWS, classes, logits);
    assert_true(in_place.sum == loss.sum);
    assert_memory_equal(logits, gradient, ROWS * classes * sizeof *logits);
    free(logits);
    free(gradient);
}

TEST(loss_and_gradient_are_their_definitions)
{
    for (size_t classes = 1; classes < 70; classes++) check_softmax(classes);
    check_softmax(1000);
    check_softmax(10000);
}

TEST(nothing_counted_costs_nothing)
{
    const int32_t targets[2] = {NN_NO_TARGET, NN_NO_TARGET};
    const float logits[4] = {1, 2, 3, 4};
    float gradient[4] = {9, 9, 9, 9};
    nn_loss loss = nn_cross_entropy(logits, targets, 2, 2, gradient);
    assert_true(loss.sum == 0.0 && loss.counted == 0);
    for (size_t i = 0; i < 4; i++) assert_true(gradient[i] == 0.0f);
}

TEST(large_logits_neither_overflow_nor_vanish)
{
    const float logits[2 * 3] = {1e4f, 0.0f, -1e4f, 1e30f, -1e30f, 0.0f};
    const int32_t targets[2] = {1, 0};
    float gradient[6], nan[2] = {NAN, 0.0f};
    nn_loss loss = nn_cross_entropy(logits, targets, 2, 3, gradient);
    assert_near(loss.sum, 1e4, 1e-9);
    assert_int_equal(loss.correct, 1);
    const float expected[6] = {0.5f, -0.5f, 0.0f, 0.0f, 0.0f, 0.0f};
    for (size_t i = 0; i < 6; i++) assert_near(gradient[i], expected[i], 1e-30);
    assert_true(isnan(nn_cross_entropy(nan, targets, 1, 2, NULL).sum)); /* divergence is not hidden */
}

TEST(log_softmax_is_its_definition)
{
    for (size_t classes = 1; classes < 70; classes += 3) {
        float *rows = random_floats(1, ROWS * classes), *result = random_floats(1, ROWS * classes);
        nn_log_softmax(result, ROWS, classes);
        for (size_t r = 0; r < ROWS; r++) {
            double sum = 0.0;
            for (size_t c = 0; c < classes; c++) sum += exp(rows[r * classes + c]);
            for (size_t c = 0; c < classes; c++)
                assert_near(result[r * classes + c], rows[r * classes + c] - log(sum), 1e-6);
        }
        free(rows);
        free(result);
    }
}

TEST(probabilities_are_shares_of_exponentials)
{
    const float logits[2 * 3] = {0.0f, (float)log(2.0), (float)log(5.0), 1e30f, -1e30f, 1e30f};
    const double expected[6] = {0.125, 0.25, 0.625, 0.5, 0.0, 0.5};
    double probabilities[6];
    nn_probabilities(logits, 2, 3, probabilities);
    for (size_t i = 0; i < 6; i++) assert_near(probabilities[i], expected[i], 1e-7);
    assert_near(probabilities[0] + probabilities[1] + probabilities[2], 1.0, 1e-15);
}

RUN_TESTS(NULL, NULL)
