/* Values: rounding is what the receiver sees, and never makes an infinity. */
#include "support.h"

#include <math.h>

static float rounded(float x, tw_value_code code)
{
    tw_values_round(&x, 1, code);
    return x;
}

static void fp32_is_exact(void **state)
{
    (void)state;
    assert_true(rounded(0.1f, TW_VALUES_FP32) == 0.1f);
    assert_true(rounded(-3.4e38f, TW_VALUES_FP32) == -3.4e38f);
}

static void known_values_round_to_the_nearest_even(void **state)
{
    (void)state;
    assert_true(rounded(1 + 0x1p-11f, TW_VALUES_FP16) == 1);
    assert_true(rounded(1 + 0x3p-11f, TW_VALUES_FP16) == 1 + 0x1p-9f);
    assert_true(rounded(0x1.8p-25f, TW_VALUES_FP16) == 0x1p-24f);
    assert_true(rounded(0x1p-25f, TW_VALUES_FP16) == 0);
    assert_true(rounded(1 + 0x1p-8f, TW_VALUES_BF16) == 1);
    assert_true(rounded(-1 - 0x3p-8f, TW_VALUES_BF16) == -1 - 0x1p-6f);
}

static void overflow_becomes_the_largest_finite_value(void **state)
{
    (void)state;
    assert_true(rounded(65504, TW_VALUES_FP16) == 65504);
    assert_true(rounded(65520, TW_VALUES_FP16) == 65504);
    assert_true(rounded(-1e30f, TW_VALUES_FP16) == -65504);
    assert_true(rounded(3.4028235e38f, TW_VALUES_BF16) == 0x1.FEp127f);
    assert_true(rounded(-3.4028235e38f, TW_VALUES_BF16) == -0x1.FEp127f);
}

static void what_is_not_finite_stays_so(void **state)
{
    (void)state;
    for (tw_value_code code = 0; code < TW_VALUES_LOG8; code++) {
        assert_true(isnan(rounded(NAN, code)));
        assert_true(rounded(INFINITY, code) == INFINITY);
        assert_true(rounded(-INFINITY, code) == -INFINITY);
    }
}

/* Putting x, putting rounded x, and reading either give rounded x, whose rounding is itself. */
static void rounding_is_what_arrives(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    uint64_t random = 2;
    for (tw_value_code code = 0; code < TW_VALUE_CODES; code++) {
        support from = support_create(COUNT, COUNT), got = support_create(COUNT, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            support_add(&from, i);
            from.value[i] = ldexpf((float)random_unit(&random) * 2 - 1, (int)(random_word(&random) % 250) - 125);
        }
        size_t size, k;
        unsigned char *packet = encode_one(&from, (tw_coding){code, TW_INDICES_AUTO}, &size);
        tw_packet_reader reader;
        assert_int_equal(tw_packet_open(&reader, packet, size), TW_OK);
        assert_int_equal(tw_packet_get_sparse(&reader, COUNT, COUNT, got.index, got.value, &k), TW_OK);
        tw_values_round(from.value, COUNT, code);
        assert_memory_equal(got.value, from.value, COUNT * sizeof(float));
        tw_values_round(from.value, COUNT, code);
        assert_memory_equal(got.value, from.value, COUNT * sizeof(float));
        free(packet);
        support_destroy(&from);
        support_destroy(&got);
    }
}

static void a_value_takes_its_bytes(void **state)
{
    (void)state;
    support from = support_uniform(1000, 0.2, 1);
    size_t size[TW_VALUE_CODES];
    for (tw_value_code code = 0; code < TW_VALUE_CODES; code++)
        free(encode_one(&from, (tw_coding){code, TW_INDICES_AUTO}, &size[code]));
    assert_int_equal(size[TW_VALUES_FP32] - size[TW_VALUES_FP16], 2 * from.k);
    assert_int_equal(size[TW_VALUES_FP16], size[TW_VALUES_BF16]);
    support_destroy(&from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_is_exact),
        cmocka_unit_test(known_values_round_to_the_nearest_even),
        cmocka_unit_test(overflow_becomes_the_largest_finite_value),
        cmocka_unit_test(what_is_not_finite_stays_so),
        cmocka_unit_test(rounding_is_what_arrives),
        cmocka_unit_test(a_value_takes_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
