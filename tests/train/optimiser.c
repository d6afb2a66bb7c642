/* The optimiser against its recursions worked out in double. All numbers are dyadic, so that both are exact. */
#include "optimiser.h"
#include "support.h"

#define STEPS 5

/* A decayed weight and a bias that is not. */
static const tw_tensor tensors[] = {{"weight", 2, {1, 1}}, {"bias", 1, {1}}};
static const float gradients[STEPS][2] = {{1, 2}, {-2, 0.5f}, {0.25f, -1}, {0, 0}, {4, -0.5f}};

/* PyTorch's SGD, one scalar. */
static double expected_sgd(const optimiser_settings *s, double decay, double rate, int element)
{
    double w = 1, buffer = 0;
    for (int t = 0; t < STEPS; t++) {
        double force = gradients[t][element] + decay * w;
        buffer = s->momentum * buffer + force;
        w -= rate * (s->nesterov ? force + s->momentum * buffer : buffer);
    }
    return w;
}

/* The gradient steps plainly; decay runs through a buffer of its own. */
static double expected_directed(const optimiser_settings *s, double decay, double rate, int element)
{
    double w = 1, buffer = 0;
    for (int t = 0; t < STEPS; t++) {
        double pull = decay * w;
        buffer = s->momentum * buffer + pull;
        w -= rate * (gradients[t][element] + (s->nesterov ? pull + s->momentum * buffer : buffer));
    }
    return w;
}

static void check(optimiser_settings settings)
{
    float w[2] = {1, 1};
    optimiser *o;
    assert_ok(optimiser_create(&settings, tensors, 2, &o));
    for (int t = 0; t < STEPS; t++) optimiser_step(o, 0.5f, gradients[t], w);
    double (*expected)(const optimiser_settings *, double, double, int) =
        settings.directed ? expected_directed : expected_sgd;
    assert_true(w[0] == expected(&settings, settings.weight_decay, 0.5, 0));
    assert_true(w[1] == expected(&settings, 0, 0.5, 1));
    optimiser_destroy(o);
}

static void every_form_follows_its_recursion(void **state)
{
    (void)state;
    for (int directed = 0; directed < 2; directed++)
        for (int nesterov = 0; nesterov < 2; nesterov++)
            for (int decayed = 0; decayed < 2; decayed++)
                for (int moved = 0; moved < 2; moved++)
                    check((optimiser_settings){moved ? 0.5f : 0, nesterov, decayed ? 0.5f : 0, directed});
}

static void directed_without_decay_is_plain_sgd(void **state)
{
    (void)state;
    float w[2] = {1, 1};
    optimiser *o;
    assert_ok(optimiser_create(&(optimiser_settings){0.9f, 1, 0, 1}, tensors, 2, &o));
    for (int t = 0; t < STEPS; t++) optimiser_step(o, 0.5f, gradients[t], w);
    assert_true(w[0] == 1 - 0.5 * (1 - 2 + 0.25 + 0 + 4));
    assert_true(w[1] == 1 - 0.5 * (2 + 0.5 - 1 + 0 - 0.5));
    optimiser_destroy(o);
}

static void buffer_is_all_it_remembers(void **state)
{
    (void)state;
    optimiser_settings settings = {0.5f, 1, 0.125f, 0};
    float through[2] = {1, 1}, moved[2] = {1, 1};
    optimiser *a, *b;
    size_t count, same;
    assert_ok(optimiser_create(&settings, tensors, 2, &a));
    assert_ok(optimiser_create(&settings, tensors, 2, &b));
    for (int t = 0; t < STEPS; t++) optimiser_step(a, 0.25f, gradients[t], through);
    optimiser_buffer(a, &count);
    assert_int_equal(count, 2);
    optimiser_destroy(a);
    assert_ok(optimiser_create(&settings, tensors, 2, &a));
    for (int t = 0; t < 2; t++) optimiser_step(a, 0.25f, gradients[t], moved);
    memcpy(optimiser_buffer(b, &same), optimiser_buffer(a, &count), count * sizeof(float));
    for (int t = 2; t < STEPS; t++) optimiser_step(b, 0.25f, gradients[t], moved);
    assert_memory_equal(through, moved, sizeof moved);
    optimiser_destroy(a);
    optimiser_destroy(b);
}

/* On a twin, with the step added by hand: the same parameters and the same memory. */
static void check_proposal(optimiser_settings settings)
{
    float taken[2] = {1, 1}, added[2] = {1, 1}, step[2];
    optimiser *a, *b;
    size_t count;
    assert_ok(optimiser_create(&settings, tensors, 2, &a));
    assert_ok(optimiser_create(&settings, tensors, 2, &b));
    for (int t = 0; t < STEPS; t++) {
        optimiser_step(a, 0.3f, gradients[t], taken);
        memcpy(step, gradients[t], sizeof step);
        optimiser_propose(b, 0.3f, added, step);
        for (int i = 0; i < 2; i++) added[i] += step[i];
        assert_memory_equal(taken, added, sizeof taken);
        assert_memory_equal(optimiser_buffer(a, &count), optimiser_buffer(b, &count), sizeof taken);
    }
    optimiser_destroy(a);
    optimiser_destroy(b);
}

static void a_proposal_is_the_step_not_taken(void **state)
{
    (void)state;
    for (int directed = 0; directed < 2; directed++)
        for (int nesterov = 0; nesterov < 2; nesterov++)
            check_proposal((optimiser_settings){0.7f, nesterov, 0.1f, directed});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_follows_its_recursion),
        cmocka_unit_test(directed_without_decay_is_plain_sgd),
        cmocka_unit_test(a_proposal_is_the_step_not_taken),
        cmocka_unit_test(buffer_is_all_it_remembers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
