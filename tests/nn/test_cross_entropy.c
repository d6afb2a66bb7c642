/* The loss against its definition. */
#include "fixture.h"

#include "cross_entropy.h"

enum { IMAGES = 6, CLASSES = 10 };

static const uint8_t labels[IMAGES] = {3, 0, 9, 9, 1, 5};

static void equal_logits_cost_the_logarithm_of_the_classes(void **state)
{
    const float logits[IMAGES * CLASSES] = {0};
    (void)state;
    nn_loss loss = nn_cross_entropy(logits, labels, IMAGES, CLASSES, NULL);
    assert_near(loss.sum, IMAGES * log(CLASSES), 1e-12);
    assert_int_equal(loss.correct, 1); /* of equals the first counts: the image of class 0 */
}

static void gradient_is_softmax_minus_label_over_images(void **state)
{
    float *logits = random_floats(1, IMAGES * CLASSES), gradient[IMAGES * CLASSES];
    (void)state;
    double sum = nn_cross_entropy(logits, labels, IMAGES, CLASSES, gradient).sum, expected_sum = 0.0;
    for (size_t n = 0; n < IMAGES; n++) {
        double total = 0.0, row = 0.0;
        for (size_t c = 0; c < CLASSES; c++) total += exp(logits[n * CLASSES + c]);
        for (size_t c = 0; c < CLASSES; c++) {
            double probability = exp(logits[n * CLASSES + c]) / total;
            assert_near(gradient[n * CLASSES + c], (probability - (c == labels[n])) / IMAGES, 1e-7);
            row += gradient[n * CLASSES + c];
        }
        assert_near(row, 0.0, 1e-7);
        expected_sum -= log(exp(logits[n * CLASSES + labels[n]]) / total);
    }
    assert_near(sum, expected_sum, 1e-9);
    free(logits);
}

static void large_logits_neither_overflow_nor_vanish(void **state)
{
    const float logits[2 * 3] = {1e4f, 0.0f, -1e4f, 1e30f, -1e30f, 0.0f};
    const uint8_t both[2] = {1, 0};
    float gradient[6];
    (void)state;
    nn_loss loss = nn_cross_entropy(logits, both, 2, 3, gradient);
    assert_near(loss.sum, 1e4, 1e-9);
    assert_int_equal(loss.correct, 1);
    const float expected[6] = {0.5f, -0.5f, 0.0f, 0.0f, 0.0f, 0.0f};
    for (size_t i = 0; i < 6; i++) assert_near(gradient[i], expected[i], 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_logits_cost_the_logarithm_of_the_classes),
        cmocka_unit_test(gradient_is_softmax_minus_label_over_images),
        cmocka_unit_test(large_logits_neither_overflow_nor_vanish),
    };
    return cmocka_run_group_tests_name("nn cross-entropy", tests, NULL, NULL);
}
