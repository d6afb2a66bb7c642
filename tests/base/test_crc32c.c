/* CRC-32C against published values and against the polynomial, a bit at a time. */
#include "crc32c.c" /* the source itself: a processor uses one of its two forms, this test both */

#include "support/cmocka.h"

enum { SIZE = 300, OFFSETS = 16 };

static void fill(unsigned char *data)
{
    for (size_t i = 0; i < SIZE + OFFSETS; i++) data[i] = (unsigned char)(i % 251 ^ i << 3);
}

TEST(published_values)
{
    unsigned char block[32];
    assert_int_equal(tw_crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(tw_crc32c(0, "", 0), 0);
    /* RFC 3720, appendix B.4 */
    memset(block, 0, sizeof block);
    assert_int_equal(tw_crc32c(0, block, sizeof block), 0x8A9136AA);
    memset(block, 0xFF, sizeof block);
    assert_int_equal(tw_crc32c(0, block, sizeof block), 0x62A8AB43);
    for (int i = 0; i < 32; i++) block[i] = (unsigned char)i;
    assert_int_equal(tw_crc32c(0, block, sizeof block), 0x46DD794E);
    for (int i = 0; i < 32; i++) block[i] = (unsigned char)(31 - i);
    assert_int_equal(tw_crc32c(0, block, sizeof block), 0x113FDB5C);
}

TEST(parts_give_the_whole)
{
    unsigned char data[SIZE + OFFSETS];
    fill(data);
    uint32_t whole = tw_crc32c(0, data, SIZE);
    for (size_t cut = 0; cut <= SIZE; cut++)
        assert_int_equal(tw_crc32c(tw_crc32c(0, data, cut), data + cut, SIZE - cut), whole);
}

static uint32_t bit_by_bit(uint32_t crc, const unsigned char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
    }
    return crc;
}

TEST(every_form_is_the_polynomial)
{
    unsigned char data[SIZE + OFFSETS];
    fill(data);
    tw_crc32c(0, data, 0); /* fills the tables */
    for (size_t offset = 0; offset < OFFSETS; offset++)
        for (size_t size = 0; size <= SIZE; size++) {
            uint32_t start = (uint32_t)(size * 0x9E3779B9u), expected = bit_by_bit(start, data + offset, size);
            assert_int_equal(crc_slices(start, data + offset, size), expected);
            if (tw_cpu_has_crc32()) assert_int_equal(crc_instruction(start, data + offset, size), expected);
        }
}

/* Long enough for streams side by side, and for what is left over of them. */
TEST(long_blocks_are_the_polynomial)
{
    static unsigned char data[7 * STREAM + 5];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * i >> 7 ^ i);
    tw_crc32c(0, data, 0); /* fills the tables */
    for (size_t size = 3 * STREAM - 9; size <= sizeof data; size += size < 3 * STREAM + 9 ? 1 : 3001) {
        uint32_t start = (uint32_t)(size * 0x9E3779B9u), expected = bit_by_bit(start, data, size);
        assert_int_equal(crc_slices(start, data, size), expected);
        if (tw_cpu_has_crc32()) assert_int_equal(crc_instruction(start, data, size), expected);
    }
    size_t size = sizeof data - 1;
    uint32_t expected = bit_by_bit(1, data + 1, size);
    if (tw_cpu_has_crc32()) assert_int_equal(crc_instruction(1, data + 1, size), expected);
}

RUN_TESTS(NULL, NULL)
