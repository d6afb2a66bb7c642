/* The gradients that bench codec compresses. */
#include "codec_source.h"
#include "model.h"
#include "support.h"

#include <math.h>

/* Those that the network itself has, whose size is the published one: nn_models. */
TEST(the_tensors_of_resnet50_are_its_models)
{
    const model_shape shape = {3, 32, 32, 1000, 1};
    codec_source source = {0};
    model *m;
    size_t count;
    assert_ok(codec_source_resnet50(&source));
    assert_ok(model_create("resnet50", &shape, &m));
    const tw_tensor *tensors = model_tensors(m, &count);
    assert_int_equal(source.count, count);
    assert_int_equal(source.elements, model_parameter_count(m));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(source.tensors[i].dims, tensors[i].dims);
        for (size_t d = 0; d < tensors[i].dims; d++) assert_int_equal(source.tensors[i].shape[d], tensors[i].shape[d]);
        for (size_t j = 0; j < i; j++) assert_string_not_equal(source.tensors[i].name, source.tensors[j].name);
    }
    model_destroy(m);
    codec_source_release(&source);
}

static void assert_shape(size_t count, size_t rows, size_t columns)
{
    codec_source source = {0};
    assert_ok(codec_source_flat(count, 1, &source));
    assert_int_equal(source.count, 1);
    assert_int_equal(source.tensors[0].dims, 2);
    assert_int_equal(source.tensors[0].shape[0], rows);
    assert_int_equal(source.tensors[0].shape[1], columns);
    codec_source_release(&source);
}

TEST(a_flat_table_is_nearly_square_where_it_can_be)
{
    assert_shape(1, 1, 1);
    assert_shape(36, 6, 6);
    assert_shape(20000, 160, 125);
    assert_shape(2560000, 1600, 1600);
    assert_shape(100003, 1, 100003);
    assert_shape(2 * 127, 127, 2);
    assert_shape(2 * 131, 1, 262);
}

TEST(a_flat_table_in_pieces_has_every_element)
{
    codec_source source = {0};
    assert_ok(codec_source_flat(1003, 4, &source));
    assert_int_equal(source.count, 4);
    assert_int_equal(source.elements, 1003);
    for (size_t i = 0; i < 4; i++) assert_int_equal(tw_tensor_count(&source.tensors[i]), i < 3 ? 251 : 250);
    codec_source_release(&source);
}

TEST(made_up_steps_differ_and_return)
{
    float first[100], other[100];
    codec_source source = {0};
    assert_ok(codec_source_flat(100, 1, &source));
    codec_source_copy(&source, 0, 0, first);
    for (size_t step = 1; step < 64; step++) {
        codec_source_copy(&source, 0, step, other);
        assert_memory_not_equal(first, other, sizeof first);
    }
    codec_source_copy(&source, 0, 64, other);
    assert_memory_equal(first, other, sizeof first);
    codec_source_release(&source);
}

/* Writes two tensors whose values are all `value`. */
static void write_step(const char *folder, const char *name, tw_dtype dtype, size_t rows, float value)
{
    float values[12];
    char path[256];
    for (size_t i = 0; i < 12; i++) values[i] = value;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    tw_state *state;
    assert_ok(tw_state_create(&state));
    assert_ok(tw_state_put(state, "weight", dtype, 2, (size_t[]){rows, 3}, values));
    assert_ok(tw_state_put(state, "bias", TW_F32, 1, (size_t[]){3}, values));
    assert_ok(tw_state_save(state, path));
    tw_state_destroy(state);
}

TEST_IN_FOLDER(kept_steps_come_in_the_order_of_their_numbers)
{
    const char *folder = *state;
    float values[12];
    codec_source source = {0};
    write_step(folder, "step-1000000.safetensors", TW_F32, 4, 3);
    write_step(folder, "step-000009.safetensors", TW_F32, 4, 1);
    write_step(folder, "step-000010.safetensors", TW_F32, 4, 2);
    assert_ok(codec_source_load(folder, &source));
    assert_int_equal(source.count, 2);
    assert_int_equal(source.elements, 15);
    assert_int_equal(source.steps, 3);
    for (size_t step = 0; step < 7; step++)
        for (size_t tensor = 0; tensor < 2; tensor++) {
            codec_source_copy(&source, tensor, step, values);
            for (size_t i = 0; i < tw_tensor_count(&source.tensors[tensor]); i++)
                assert_float_equal(values[i], (float)(1 + step % 3), 0);
        }
    codec_source_release(&source);
}

static void assert_refused(const char *folder, tw_status status, const char *word)
{
    codec_source source = {0};
    assert_fails(codec_source_load(folder, &source), status, word);
    codec_source_release(&source);
}

TEST_IN_FOLDER(files_of_other_tensors_are_refused)
{
    const char *folder = *state;
    assert_refused("/nonexistent", TW_ERROR_IO, "/nonexistent");
    assert_refused(folder, TW_ERROR_IO, "--dump-gradients");
    write_step(folder, "step-000001.safetensors", TW_F32, 4, 1);
    write_step(folder, "step-000002.safetensors", TW_F32, 3, 1);
    assert_refused(folder, TW_ERROR_FORMAT, "step-000002");
    write_step(folder, "step-000002.safetensors", TW_I32, 4, 1);
    assert_refused(folder, TW_ERROR_FORMAT, "not F32");
    write_step(folder, "step-000002.safetensors", TW_F32, 4, NAN);
    assert_refused(folder, TW_ERROR_FORMAT, "NaN");
}

RUN_TESTS(NULL, NULL)
