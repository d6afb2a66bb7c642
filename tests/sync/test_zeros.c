/* Values of which most are zero, packed inside a host: what comes out has the same bits, and nothing else is taken. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <thinwire/thinwire_plugin.h>

#include "support/cmocka.h"
#include "zeros.h"

enum { MOST = 300, ROOM = MOST * 8 };

/* One value in `sparsity` is not zero; among them a -0, a NaN with a payload, the smallest and the largest. */
static size_t fill(float *values, size_t count, uint32_t sparsity, uint64_t seed)
{
    static const uint32_t odd[] = {0x80000000u, 0x7fc12345u, 1, 0x7f7fffffu};
    size_t others = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t words[4], bits = 0;
        tw_random(seed, sparsity, i, words);
        if (words[0] % sparsity == 0) bits = words[1] % 4 ? words[2] | 1 : odd[words[2] % 4];
        others += bits != 0;
        memcpy(&values[i], &bits, sizeof bits);
    }
    return others;
}

TEST(test_what_comes_out_has_the_same_bits)
{
    static const uint32_t sparsities[] = {1, 2, 10, 100, 1000000};
    float values[MOST], found[MOST];
    unsigned char packed[ROOM];
    for (size_t count = 1; count <= MOST; count++)
        for (size_t s = 0; s < sizeof sparsities / sizeof *sparsities; s++) {
            size_t others = fill(values, count, sparsities[s], count);
            size_t size = tw_zeros_pack(values, count, packed, sizeof packed);
            assert_int_equal(size, (count + 63) / 64 * 8 + 4 * others);
            memset(found, 0xff, sizeof found);
            assert_int_equal(tw_zeros_unpack(packed, size, found, count), 1);
            assert_memory_equal(found, values, count * sizeof *values);
        }
}

/* With room for a whole block more than there is, as one is not counted before it is written. */
TEST(test_it_is_not_packed_where_that_is_no_less)
{
    float values[MOST];
    unsigned char packed[ROOM];
    fill(values, MOST, 1, 3);
    assert_int_equal(tw_zeros_pack(values, MOST, packed, MOST * sizeof *values / 2), 0);
    fill(values, MOST, 100, 3);
    size_t size = tw_zeros_pack(values, MOST, packed, sizeof packed);
    assert_int_equal(tw_zeros_pack(values, MOST, packed, size + 264), size);
    memset(packed, 0xab, sizeof packed);
    for (size_t room = 0; room < size; room++) {
        assert_int_equal(tw_zeros_pack(values, MOST, packed, room), 0);
        assert_int_equal(packed[room], 0xab);
    }
}

/* A word for values that are not there, a byte too few, one too many. */
TEST(test_what_does_not_fit_is_refused)
{
    float values[MOST], found[MOST];
    unsigned char packed[ROOM] = {0};
    enum { COUNT = 130 };
    fill(values, COUNT, 10, 5);
    size_t size = tw_zeros_pack(values, COUNT, packed, sizeof packed);
    for (size_t wrong = 0; wrong < sizeof packed; wrong++)
        assert_int_equal(tw_zeros_unpack(packed, wrong, found, COUNT), wrong == size);
    for (int bit = 0; bit < 64; bit++) {
        packed[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_equal(tw_zeros_unpack(packed, size, found, COUNT), 0);
        packed[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    memset(found, 0, sizeof found);
    size = tw_zeros_pack(found, COUNT, packed, sizeof packed);
    packed[16] = 4; /* the third value of two */
    assert_int_equal(tw_zeros_unpack(packed, size + sizeof *found, found, COUNT), 0);
}

RUN_TESTS(NULL, NULL)
