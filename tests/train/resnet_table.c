/* The tensors of ResNet-50: the model's are those that thinwire simulate exchanges. */
#include "layout.h"
#include "model.h"
#include "support/assert.h"

static void the_model_has_the_tensors_of_the_simulator(void **state)
{
    const model_shape shape = {3, 32, 32, 1000, 1};
    layout table = {0};
    model *m;
    size_t count;
    (void)state;
    assert_ok(layout_create("resnet50", &table));
    assert_ok(model_create("resnet50", &shape, &m));
    const tw_tensor *tensors = model_tensors(m, &count);
    assert_int_equal(count, table.count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tensors[i].dims, table.tensors[i].dims);
        for (size_t d = 0; d < tensors[i].dims; d++) assert_int_equal(tensors[i].shape[d], table.tensors[i].shape[d]);
    }
    assert_string_equal(tensors[0].name, "conv1.weight");
    assert_string_equal(tensors[12].name, "layer1.0.downsample.0.weight");
    assert_string_equal(tensors[160].name, "fc.bias");
    model_destroy(m);
    layout_release(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_model_has_the_tensors_of_the_simulator)};
    return cmocka_run_group_tests_name("resnet table", tests, NULL, NULL);
}
