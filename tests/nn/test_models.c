/* Whole models through model.h. */
#include "support/assert.h"
#include "support/random.h"

#include <pthread.h>

#include "definition.h"
#include "model.h"

enum { CLASSES = 10, BATCH = 12 };

static const model_shape grey = {1, 28, 28, CLASSES, BATCH};
static const model_shape coloured = {3, 32, 32, CLASSES, BATCH};

/* Without weights: to draw those of a large one takes longer than all else. */
static model *create(const char *name, model_shape shape, size_t batch)
{
    model *m;
    shape.batch = batch;
    assert_ok(model_create(name, &shape, &m));
    return m;
}

static model *make(const char *name, model_shape shape, size_t batch)
{
    model *m = create(name, shape, batch);
    model_initialise(m, 42);
    return m;
}

typedef struct samples {
    float *images;
    uint16_t *labels;
    size_t image; /* floats of one */
} samples;

static samples make_samples(const model_shape *shape, size_t count)
{
    samples s = {.image = shape->channels * shape->height * shape->width};
    s.images = malloc(count * s.image * sizeof *s.images);
    s.labels = malloc(count * sizeof *s.labels);
    for (size_t i = 0; i < count * s.image; i++) {
        uint32_t words[4];
        tw_random(1, 0, i, words);
        s.images[i] = (float)words[0] * 0x1p-31f - 1.0f;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t words[4];
        tw_random(1, 1, i, words);
        s.labels[i] = (uint16_t)(words[0] % CLASSES);
    }
    return s;
}

static void free_samples(samples *s)
{
    free(s->images);
    free(s->labels);
}

static model_result step(model *m, const samples *s, size_t first, size_t count)
{
    model_result result;
    assert_ok(model_step(m, s->images + first * s->image, s->labels + first, count, NULL, NULL, &result));
    return result;
}

static model_result evaluate(model *m, const samples *s, size_t first, size_t count)
{
    model_result result;
    assert_ok(model_evaluate(m, s->images + first * s->image, s->labels + first, count, &result));
    return result;
}

/* ---- tables ---- */

/* Help shows the list's name, and --model takes the definition's. */
TEST(a_definition_has_the_name_that_the_list_has)
{
#define CHECK_NAME(listed) assert_string_equal(listed##_model.name, #listed);
    MODELS(CHECK_NAME)
#undef CHECK_NAME
}

/* Convolutions, batch norms (two values a filter) and the linear layer of a CIFAR ResNet. */
static size_t resnet_parameters(size_t depth, size_t channels)
{
    size_t blocks = (depth - 2) / 6, count = 9 * channels * 16 + 2 * 16;
    for (size_t filters = 16, before = 16; filters <= 64; before = filters, filters *= 2)
        count += 9 * before * filters + (2 * blocks - 1) * 9 * filters * filters + 2 * blocks * 2 * filters;
    return count + 64 * CLASSES + CLASSES;
}

TEST(resnets_have_the_parameters_of_the_paper)
{
    static const struct {
        const char *name;
        size_t depth, count;
    } cases[] = {
        {"resnet20", 20, 269722}, {"resnet32", 32, 464154}, {"resnet56", 56, 853018}, {"resnet110", 110, 1727962}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t tensors;
        model *m = create(cases[i].name, coloured, 1);
        assert_int_equal(model_parameter_count(m), cases[i].count);
        assert_int_equal(resnet_parameters(cases[i].depth, 3), cases[i].count);
        model_tensors(m, &tensors);
        assert_int_equal(tensors, 3 * (cases[i].depth - 1) + 2);
        model_destroy(m);
    }
}

/* torchvision's figures. */
TEST(large_resnets_have_the_parameters_of_the_paper)
{
    static const struct {
        const char *name;
        size_t tensors, count;
    } cases[] = {{"resnet18", 62, 11689512}, {"resnet34", 110, 21797672}, {"resnet50", 161, 25557032}};
    const model_shape shape = {3, 32, 32, 1000, 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t tensors;
        model *m = create(cases[i].name, shape, 1);
        model_tensors(m, &tensors);
        assert_int_equal(tensors, cases[i].tensors);
        assert_int_equal(model_parameter_count(m), cases[i].count);
        model_destroy(m);
    }
}

/* Networks take the sizes that pictures come in, not only those they were made for. */
TEST(images_may_have_any_size)
{
    static const struct {
        const char *name;
        size_t height, width;
    } cases[] = {{"cnn", 40, 56}, {"resnet20", 64, 48}, {"resnet18", 65, 97}, {"resnet50", 33, 40}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const model_shape shape = {3, cases[i].height, cases[i].width, CLASSES, 2};
        model *m = make(cases[i].name, shape, 2);
        samples s = make_samples(&shape, 2);
        assert_true(step(m, &s, 0, 2).loss > 0);
        free_samples(&s);
        model_destroy(m);
    }
}

static void check_table(const tw_tensor *tensors, size_t count, size_t elements)
{
    size_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        size_t product = 1;
        for (size_t d = 0; d < tensors[i].dims; d++) product *= tensors[i].shape[d];
        for (size_t j = 0; j < i; j++) assert_string_not_equal(tensors[i].name, tensors[j].name);
        sum += product;
    }
    assert_int_equal(sum, elements);
}

TEST(tables_name_every_element_once)
{
    for (size_t i = 0; model_name(i); i++) {
        size_t count, offset = 0;
        model *m = create(model_name(i), grey, 1);
        const tw_tensor *tensors = model_tensors(m, &count);
        check_table(tensors, count, model_parameter_count(m));
        for (size_t t = 0; t < count; t++) {
            assert_int_equal(model_offset(m, t), offset);
            size_t product = 1;
            for (size_t d = 0; d < tensors[t].dims; d++) product *= tensors[t].shape[d];
            offset += product;
        }
        tensors = model_buffer_tensors(m, &count);
        check_table(tensors, count, model_buffer_count(m));
        assert_non_null(model_summary(i));
        model_destroy(m);
    }
}

TEST(tensors_are_named_as_in_pytorch)
{
    static const char *const first[] = {"conv1.weight",          "bn1.weight",          "bn1.bias",
                                        "layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer1.0.bn1.bias",
                                        "layer1.0.conv2.weight", "layer1.0.bn2.weight", "layer1.0.bn2.bias",
                                        "layer1.1.conv1.weight"};
    size_t count;
    model *m = make("resnet20", coloured, 1);
    const tw_tensor *tensors = model_tensors(m, &count);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) assert_string_equal(tensors[i].name, first[i]);
    assert_string_equal(tensors[count - 2].name, "fc.weight");
    assert_string_equal(model_buffer_tensors(m, &count)[1].name, "bn1.running_var");
    model_destroy(m);
}

TEST(initial_weights_are_he_normal)
{
    size_t count;
    model *m = make("resnet56", coloured, 1);
    const tw_tensor *tensors = model_tensors(m, &count);
    for (size_t t = 0; t < count; t++) {
        if (tensors[t].dims != 4 || tensors[t].shape[0] != 64) continue;
        size_t fan_in = tensors[t].shape[1] * 9, elements = 64 * fan_in;
        const float *values = model_parameters(m) + model_offset(m, t);
        double sum = 0.0, squares = 0.0;
        for (size_t i = 0; i < elements; i++) {
            sum += values[i];
            squares += (double)values[i] * values[i];
        }
        double variance = 2.0 / (double)fan_in, mean = sum / (double)elements;
        assert_true(fabs(mean) < 5.0 * sqrt(variance / (double)elements)); /* five standard errors */
        assert_true(fabs(squares / (double)elements / variance - 1.0) < 5.0 * sqrt(2.0 / (double)elements));
    }
    model_destroy(m);
}

/* ---- steps ---- */

TEST(a_smaller_call_equals_a_model_made_for_it)
{
    samples s = make_samples(&grey, BATCH);
    for (size_t i = 0; i < 2; i++) {
        model *large = make(model_name(i), grey, BATCH);
        for (size_t count = 1; count < BATCH; count += 2) { /* more sizes than are kept */
            model *small = make(model_name(i), grey, count);
            memcpy(model_buffers(small), model_buffers(large), model_buffer_count(large) * sizeof(float));
            model_result expected = step(small, &s, 0, count), result = step(large, &s, 0, count);
            assert_true(result.loss == expected.loss);
            assert_int_equal(result.images, count);
            assert_memory_equal(model_gradients(large), model_gradients(small),
                                model_parameter_count(large) * sizeof(float));
            assert_memory_equal(model_buffers(large), model_buffers(small), model_buffer_count(large) * sizeof(float));
            model_destroy(small);
        }
        model_destroy(large);
    }
    free_samples(&s);
}

/* ---- the callback ---- */

typedef struct record {
    model *m;
    size_t next; /* tensors come from the last to the first */
    float *copy; /* of the gradients when they were announced */
    size_t stop_at;
} record;

static tw_status note(void *context, size_t index, float *gradient)
{
    record *r = context;
    size_t count;
    model_tensors(r->m, &count);
    size_t begin = model_offset(r->m, index);
    size_t end = index + 1 < count ? model_offset(r->m, index + 1) : model_parameter_count(r->m);
    assert_int_equal(index, --r->next);
    assert_ptr_equal(gradient, model_gradients(r->m) + begin);
    memcpy(r->copy + begin, gradient, (end - begin) * sizeof *gradient);
    return index == r->stop_at ? tw_fail(TW_ERROR_PEER, "stopped by the test") : TW_OK;
}

TEST(gradients_are_announced_complete_and_backwards)
{
    samples s = make_samples(&grey, BATCH);
    for (size_t i = 0; i < 2; i++) {
        model *m = make(model_name(i), grey, BATCH);
        record r = {.m = m, .copy = calloc(model_parameter_count(m), sizeof(float)), .stop_at = SIZE_MAX};
        model_result result;
        model_tensors(m, &r.next);
        assert_ok(model_step(m, s.images, s.labels, BATCH, note, &r, &result));
        assert_int_equal(r.next, 0);
        assert_memory_equal(r.copy, model_gradients(m), model_parameter_count(m) * sizeof(float));
        model_tensors(m, &r.next);
        r.stop_at = 2;
        assert_int_equal(model_step(m, s.images, s.labels, BATCH, note, &r, &result), TW_ERROR_PEER);
        assert_int_equal(r.next, 2);
        free(r.copy);
        model_destroy(m);
    }
    free_samples(&s);
}

/* ---- training ---- */

TEST(cnn_learns_random_labels_by_heart)
{
    enum { IMAGES = 64, STEPS = 200 };
    samples s = make_samples(&grey, IMAGES);
    model *m = make("cnn", grey, IMAGES);
    size_t count = model_parameter_count(m), correct = 0;
    float *velocity = calloc(count, sizeof *velocity);
    for (int i = 0; i < STEPS && correct < IMAGES; i++) {
        step(m, &s, 0, IMAGES);
        for (size_t k = 0; k < count; k++) {
            velocity[k] = 0.9f * velocity[k] + model_gradients(m)[k];
            model_parameters(m)[k] -= 0.003f * velocity[k];
        }
        correct = evaluate(m, &s, 0, IMAGES).correct;
    }
    assert_int_equal(correct, IMAGES);
    free(velocity);
    model_destroy(m);
    free_samples(&s);
}

/* ---- threads ---- */

static void *train_in_thread(void *argument)
{
    model *m = argument;
    samples s = make_samples(&grey, BATCH);
    model_result result;
    for (int i = 0; i < 3; i++) {
        if (model_step(m, s.images, s.labels, BATCH, NULL, NULL, &result) != TW_OK) return NULL;
        for (size_t k = 0; k < model_parameter_count(m); k++) model_parameters(m)[k] -= 0.01f * model_gradients(m)[k];
    }
    free_samples(&s);
    return m;
}

TEST(models_in_other_threads_compute_the_same_bits)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    model *models[THREADS + 1];
    for (int i = 0; i <= THREADS; i++) models[i] = make("resnet20", grey, BATCH);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, train_in_thread, models[i]), 0);
    assert_non_null(train_in_thread(models[THREADS]));
    for (int i = 0; i < THREADS; i++) {
        void *done;
        pthread_join(threads[i], &done);
        assert_non_null(done);
        assert_memory_equal(model_parameters(models[i]), model_parameters(models[THREADS]),
                            model_parameter_count(models[i]) * sizeof(float));
    }
    for (int i = 0; i <= THREADS; i++) model_destroy(models[i]);
}

/* ---- refusals ---- */

TEST(an_unknown_name_is_answered_with_the_list)
{
    model *m = NULL;
    assert_int_equal(model_create("resnet21", &coloured, &m), TW_ERROR_ARGUMENT);
    assert_null(m);
    for (size_t i = 0; model_name(i); i++) assert_non_null(strstr(tw_last_error(), model_name(i)));
}

TEST(impossible_calls_are_refused)
{
    samples s = make_samples(&grey, BATCH + 1);
    model *m = make("cnn", grey, BATCH), *none = NULL;
    model_result result;
    assert_int_equal(model_step(m, s.images, s.labels, BATCH + 1, NULL, NULL, &result), TW_ERROR_ARGUMENT);
    assert_int_equal(model_step(m, s.images, s.labels, 0, NULL, NULL, &result), TW_ERROR_ARGUMENT);
    s.labels[3] = CLASSES;
    assert_int_equal(model_evaluate(m, s.images, s.labels, BATCH, &result), TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "image 3"));
    assert_int_equal(model_create("cnn", &(model_shape){1, 28, 28, CLASSES, 0}, &none), TW_ERROR_ARGUMENT);
    assert_int_equal(model_create("cnn", &(model_shape){1, 28, 28, 1, 4}, &none), TW_ERROR_ARGUMENT);
    assert_int_equal(model_create("cnn", &(model_shape){1, 2, 2, CLASSES, 4}, &none), TW_ERROR_ARGUMENT);
    assert_int_equal(model_create("cnn", &(model_shape){0, 28, 28, CLASSES, 4}, &none), TW_ERROR_ARGUMENT);
    assert_null(none);
    model_destroy(NULL);
    model_destroy(m);
    free_samples(&s);
}

RUN_TESTS(NULL, NULL)
