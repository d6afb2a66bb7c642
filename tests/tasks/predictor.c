/* A classifier that is used says of a file what it said of it when it was tested: all that it needs is described. */
#include "bench.h"
#include "image_network.h"

static int write_all(void **state)
{
    int made = make_folder(state);
    if (made == 0) write_photos();
    return made;
}

static void copy_weights(const learner *l, task_predictor *p)
{
    assert_int_equal(p->tensor_count, l->tensor_count);
    assert_int_equal(p->buffer_tensor_count, l->buffer_tensor_count);
    memcpy(p->parameters, l->parameters, l->parameter_count * sizeof *l->parameters);
    memcpy(p->buffers, l->buffers, l->buffer_count * sizeof *l->buffers);
}

static double cost_of(task_predictor *p, unsigned number)
{
    image_class answers[4];
    size_t count;
    char name[64];
    const char *label = number % 2 ? "b" : "a";
    snprintf(name, sizeof name, "photos/test/%s/%u.png", label, number);
    assert_ok(image_classify(p, in_folder(name), answers, 4, &count));
    assert_int_equal(count, 2);
    assert_true(answers[0].probability >= answers[1].probability);
    assert_near(answers[0].probability + answers[1].probability, 1, 1e-12);
    return -log(answers[strcmp(answers[0].label, label) ? 1 : 0].probability);
}

static void check_model(const char *words)
{
    bench b;
    task_predictor *p;
    tw_state *state;
    task_score score = {0};
    double cost = 0;
    bench_open(&b, words);
    learner *l = bench_learner(&b, 0, 1, 3);
    for (uint64_t step = 0; step < 2; step++) {
        bench_step(l, step); /* running statistics move */
        for (size_t i = 0; i < l->parameter_count; i++) l->parameters[i] -= 0.01f * l->gradients[i];
    }
    assert_ok(b.ops->evaluate(l, TASK_TEST, 0, 1, &score));
    assert_ok(tw_state_create(&state));
    assert_ok(b.ops->describe(l, state));
    assert_fails(b.ops->predictor_open(state, l->parameter_count - 1, &p), TW_ERROR_FORMAT, "weights");
    assert_ok(b.ops->predictor_open(state, l->parameter_count, &p));
    copy_weights(l, p);
    for (unsigned i = PHOTOS; i < PHOTOS + 5; i++)
        if (i != PHOTOS + 2) cost += cost_of(p, i); /* that one is damaged */
    assert_near(score.count, 4, 0);
    assert_near(cost / score.loss, 1, 1e-5);
    b.ops->predictor_close(p);
    tw_state_destroy(state);
    task_learner_destroy(l);
    bench_close(&b);
}

TEST_BETWEEN(a_predictor_says_what_a_test_said, write_all, remove_folder)
{
    check_model("image --data @/photos --image-size 12");
    check_model("image --data @/photos --image-size 20 --model resnet20 --resized-crop");
}

RUN_TESTS(NULL, NULL)
