/* The rows of thinwire_scheme.h. */
#include "rows.h"

#include <thinwire/thinwire_scheme.h>

static const tw_tensor table[] = {{"w", 2, {2, 3}}};

/* Of a scheme of the library's own, whose inside is nobody's: it answers what any scheme does. */
static void test_scheme(void **state)
{
    (void)state;
    tw_scheme *scheme;
    size_t shape[TW_MAX_DIMS] = {9, 9, 9};
    float value[6] = {1, 2, 3, 4, 5, 6};
    uint32_t index[6];
    tw_walk *walk = (tw_walk *)value; /* nobody comes to look at it */
    assert_int_equal(tw_scheme_create("topk:min_elements=1", table, 1, 2, 3, &scheme), TW_OK);
    NEEDED(tw_scheme_register, definition, NULL);
    NEEDED(tw_plugin_load, path, NULL);
    WITHOUT(tw_scheme_rank, scheme, tw_scheme_rank(NULL) == 0 && tw_scheme_rank(scheme) == 2);
    WITHOUT(tw_scheme_size, scheme, tw_scheme_size(NULL) == 0 && tw_scheme_size(scheme) == 3);
    WITHOUT(tw_scheme_tensors, scheme, tw_scheme_tensors(NULL) == 0 && tw_scheme_tensors(scheme) == 1);
    WITHOUT(tw_scheme_tensor_name, scheme, *tw_scheme_tensor_name(NULL, 0) == 0);
    WITHOUT(tw_scheme_elements, scheme, tw_scheme_elements(NULL, 0) == 0 && tw_scheme_elements(scheme, 0) == 6);
    WITHOUT(tw_scheme_shape, scheme, tw_scheme_shape(NULL, 0, shape) == 0 && shape[0] == 9);
    WITHOUT(tw_scheme_shape, shape, tw_scheme_shape(scheme, 0, NULL) == 2);
    WITHOUT(tw_scheme_is_compressed, scheme, tw_scheme_is_compressed(NULL, 0) == 0);
    WITHOUT(tw_scheme_step, scheme, tw_scheme_step(NULL) == 0 && tw_scheme_step(scheme) == 0);
    WITHOUT(tw_scheme_gradient, scheme, tw_scheme_gradient(NULL, 0) == NULL && tw_scheme_gradient(scheme, 0) == NULL);
    WITHOUT(tw_scheme_is_absent, scheme, tw_scheme_is_absent(NULL, 0) == 0 && tw_scheme_is_absent(scheme, 9) == 0);
    WITHOUT(tw_scheme_scale, scheme, tw_scheme_scale(NULL) == 0);
    WITHOUT(tw_scheme_is_finite, scheme, tw_scheme_is_finite(NULL) == 0);
    NOTHING(tw_scheme_skip, scheme, NULL);
    NEEDED(tw_walk_visit, walk, NULL, "what", "w", TW_STATE_ADDS, TW_F32, 6, value);
    NEEDED(tw_walk_visit, what, walk, NULL, "w", TW_STATE_ADDS, TW_F32, 6, value);
    NEEDED(tw_walk_visit, tensor, walk, "what", NULL, TW_STATE_ADDS, TW_F32, 6, value);
    NEEDED(tw_walk_visit, data, walk, "what", "w", TW_STATE_ADDS, TW_F32, 6, NULL);
    static const char *const taken[] = {"residual", "rounding", "section", "scheme"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        assert_int_equal(tw_walk_visit(walk, taken[i], "w", TW_STATE_ADDS, TW_F32, 6, value), TW_ERROR_ARGUMENT);
        assert_non_null(strstr(tw_last_error(), taken[i]));
    }
    WITHOUT(tw_scheme_choose_largest, scheme, tw_scheme_choose_largest(NULL, 0, value, 1, 0, index, value) == 0);
    WITHOUT(tw_scheme_choose_largest, values, tw_scheme_choose_largest(scheme, 0, NULL, 1, 0, index, value) == 0);
    WITHOUT(tw_scheme_choose_largest, index, tw_scheme_choose_largest(scheme, 0, value, 1, 0, NULL, value) == 0);
    WITHOUT(tw_scheme_choose_largest, value, tw_scheme_choose_largest(scheme, 0, value, 1, 0, index, NULL) == 0);
    assert_int_equal(tw_scheme_choose_largest(scheme, 0, value, 1, 0, index, value), 0); /* outside of choose */
    assert_string_equal(tw_scheme_tensor_name(scheme, 0), "w");
    assert_string_equal(tw_scheme_tensor_name(scheme, 1), "");
    assert_int_equal(tw_scheme_elements(scheme, 1), 0);
    assert_int_equal(tw_scheme_shape(scheme, 1, shape), 0);
    assert_int_equal(tw_scheme_shape(scheme, 0, shape), 2);
    assert_true(shape[0] == 2 && shape[1] == 3 && shape[2] == 0);
    assert_true(tw_scheme_is_compressed(scheme, 0) && !tw_scheme_is_compressed(scheme, 1));
    tw_scheme_destroy(scheme);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scheme)};
    return rows_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
