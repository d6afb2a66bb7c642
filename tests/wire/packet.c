/* The packet: known bytes, and refusal of everything that is not one. */
#include "support.h"

#include <math.h>

/* Worked out by hand from docs/wire-format.md; the checksums with a bit-by-bit CRC-32C. */
static const unsigned char golden_nothing[] = {0x54, 0x57, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                               0x00, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x40, 0xda, 0x99, 0xad};
static const unsigned char golden_rice[] = {
    0x54, 0x57, 0x03, 0x00, 0x01, 0x00, 0x00, 0x00, 0x13, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x02, 0x01, 0x00, 0x00, 0x3b, 0x2a, 0x68, 0x89,  /* step 258 */
    0x00, 0x03, 0x04, 0x04, 0xeb, 0x42, 0x04,                                /* r = 4; gaps 5, 11, 72 */
    0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0xc0, 0x00, 0x00, 0x00, 0x3f}; /* 1, -2, 0.5 */
static const unsigned char golden_mixed[] = {
    0x54, 0x57, 0x03, 0x00, 0x05, 0x00, 0x00, 0x00, 0x1e, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0x2b, 0x21, 0xf4, 0x7d, /* step 2^32 - 1 */
    0x11, 0x04, 0x01, 0xa5, 0x00, 0x3c, 0x00, 0xb8, 0xff, 0x7b, 0x01, 0x00, /* bitmap, fp16 */
    0xe0,                                                                   /* empty */
    0x22, 0x02, 0x00, 0x80, 0x3f, 0x40, 0xc0,                               /* all, bf16 */
    0xd1, 0xac, 0x02, 0x00, 0xbc,                                           /* one element, fp16 */
    0xf0, 0x03, 0x07, 0x08, 0x09};                                          /* a block */
static const unsigned char golden_one[] = {0x54, 0x57, 0x03, 0x00, 0x01, 0x00, 0x00, 0x00, 0x05, 0x00,
                                           0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                           0x9e, 0x47, 0x68, 0xb0, 0xd1, 0xac, 0x02, 0x00, 0xbc};
static const unsigned char golden_nonfinite[] = {0x54, 0x57, 0x03, 0x01, 0x02, 0x00, 0x00, 0x00, 0x02,
                                                 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09, 0x00,
                                                 0x00, 0x00, 0xaf, 0xcf, 0xb0, 0x28, 0xe0, 0xe0};

/* From the steps in docs/wire-format.md, with integers as long as it takes. */
static const unsigned char golden_carried[] = {0x54, 0x57, 0x03, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                               0x00, 0x00, 0x00, 0x00, 0x02, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
static const unsigned char golden_adaptive[] = {0x54, 0x57, 0x03, 0x00, 0x01, 0x00, 0x00, 0x00, 0x09, 0x00, 0x00,
                                                0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x01, 0x00, 0x00, 0x0e, 0x23,
                                                0xac, 0x54, 0x34, 0x03, 0x03, 0x27, 0x41, 0xfa, /* v: 6, 12, 73 */
                                                0x95, 0x3f, 0x02};                              /* 7/6; + - + */

static const uint32_t rice_index[] = {5, 17, 90}, bitmap_index[] = {0, 2, 5, 7}, all_index[] = {0, 1},
                      one_index[] = {300};
static const float rice_value[] = {1, -2, 0.5f}, bitmap_value[] = {1, -0.5f, 65504, 0x1p-24f}, all_value[] = {1, -3},
                   one_value[] = {-1};
static const unsigned char block_bytes[] = {7, 8, 9};

#define PUT(writer, n, name, code)                                                                                     \
    assert_int_equal(tw_packet_put_sparse(writer, n, sizeof name##_index / sizeof *name##_index, name##_index,         \
                                          name##_value, (tw_coding){code, TW_INDICES_AUTO}),                           \
                     TW_OK)

static void put_empty(tw_packet_writer *writer, size_t n)
{
    assert_int_equal(tw_packet_put_sparse(writer, n, 0, NULL, NULL, FP32), TW_OK);
}

static const tw_coding FP32_RICE = {TW_VALUES_FP32, TW_INDICES_RICE};
#define PUT_RICE(writer)                                                                                               \
    assert_int_equal(tw_packet_put_sparse(writer, 100, 3, rice_index, rice_value, FP32_RICE), TW_OK)

#define EXPECT_GOLDEN(writer, packet, golden)                                                                          \
    do {                                                                                                               \
        assert_int_equal(tw_packet_end(writer), sizeof golden);                                                        \
        assert_memory_equal(packet, golden, sizeof golden);                                                            \
    } while (0)

TEST(writing_gives_the_known_bytes)
{
    unsigned char packet[64];
    tw_packet_writer writer;
    tw_packet_begin(&writer, packet, sizeof packet, 7, 0, 0);
    EXPECT_GOLDEN(&writer, packet, golden_nothing);
    tw_packet_begin(&writer, packet, sizeof packet, 258, 0, 0);
    PUT_RICE(&writer);
    EXPECT_GOLDEN(&writer, packet, golden_rice);
    tw_packet_begin(&writer, packet, sizeof packet, 258, 0, 0);
    tw_coding coding = {TW_VALUES_SIGN, TW_INDICES_ADAPTIVE};
    assert_int_equal(tw_packet_put_sparse(&writer, 100, 3, rice_index, rice_value, coding), TW_OK);
    EXPECT_GOLDEN(&writer, packet, golden_adaptive);
    tw_packet_begin(&writer, packet, sizeof packet, 0xFFFFFFFF, 0, 0);
    PUT(&writer, 8, bitmap, TW_VALUES_FP16);
    put_empty(&writer, 50);
    PUT(&writer, 2, all, TW_VALUES_BF16);
    PUT(&writer, 1000, one, TW_VALUES_FP16);
    unsigned char *block;
    assert_int_equal(tw_packet_put_block(&writer, sizeof block_bytes, &block), TW_OK);
    memcpy(block, block_bytes, sizeof block_bytes);
    EXPECT_GOLDEN(&writer, packet, golden_mixed);
    tw_packet_begin(&writer, packet, sizeof packet, 9, 1, 0);
    put_empty(&writer, 8);
    put_empty(&writer, 8);
    EXPECT_GOLDEN(&writer, packet, golden_nonfinite);
    tw_packet_begin(&writer, packet, sizeof packet, 258, 1, 1);
    EXPECT_GOLDEN(&writer, packet, golden_carried);
}

#define GET(reader, n, name)                                                                                           \
    do {                                                                                                               \
        assert_int_equal(tw_packet_get_sparse(reader, n, 8, index, value, &k), TW_OK);                                 \
        assert_int_equal(k, sizeof name##_index / sizeof *name##_index);                                               \
        assert_memory_equal(index, name##_index, sizeof name##_index);                                                 \
        assert_memory_equal(value, name##_value, sizeof name##_value);                                                 \
    } while (0)

TEST(reading_takes_the_known_bytes)
{
    uint32_t index[8];
    float value[8];
    size_t k;
    tw_packet_reader reader;
    assert_int_equal(tw_packet_open(&reader, golden_rice, sizeof golden_rice, 1), TW_OK);
    assert_int_equal(reader.info.step, 258);
    assert_int_equal(reader.info.sections, 1);
    GET(&reader, 100, rice);
    assert_int_equal(tw_packet_close(&reader), TW_OK);
    assert_int_equal(tw_packet_open(&reader, golden_mixed, sizeof golden_mixed, 1), TW_OK);
    assert_int_equal(reader.info.step, 0xFFFFFFFF);
    assert_int_equal(reader.info.nonfinite, 0);
    GET(&reader, 8, bitmap);
    assert_int_equal(tw_packet_get_sparse(&reader, 50, 0, index, value, &k), TW_OK);
    assert_int_equal(k, 0);
    GET(&reader, 2, all);
    GET(&reader, 1000, one);
    const unsigned char *block;
    assert_int_equal(tw_packet_get_block(&reader, sizeof block_bytes, &block), TW_OK);
    assert_memory_equal(block, block_bytes, sizeof block_bytes);
    assert_int_equal(tw_packet_close(&reader), TW_OK);
    assert_int_equal(tw_packet_open(&reader, golden_nonfinite, sizeof golden_nonfinite, 1), TW_OK);
    assert_int_equal(reader.info.nonfinite, 1);
    assert_int_equal(reader.info.sections, 2);
    assert_int_equal(reader.info.carried, 0);
    assert_int_equal(tw_packet_open(&reader, golden_carried, sizeof golden_carried, 1), TW_OK);
    assert_int_equal(reader.info.nonfinite, 1);
    assert_int_equal(reader.info.carried, 1);
    assert_int_equal(tw_packet_open(&reader, golden_carried, sizeof golden_carried, 0), TW_ERROR_PACKET);
    assert_string_equal(tw_last_error(), "a packet has no checksum, and what brought it does not check its bytes");
    assert_int_equal(tw_packet_open(&reader, golden_nonfinite, sizeof golden_nonfinite, 0), TW_OK);
}

/* One that says so still has its checksum, or the rest of one: damage has made it say so. */
TEST(a_carried_packet_has_no_checksum)
{
    unsigned char packet[sizeof golden_rice];
    tw_packet_reader reader;
    memcpy(packet, golden_rice, sizeof packet);
    packet[3] = 2;
    for (unsigned at = 20; at < 24; at++) {
        assert_int_equal(tw_packet_open(&reader, packet, sizeof packet, 1), TW_ERROR_PACKET);
        packet[at] = 0;
    }
    assert_int_equal(tw_packet_open(&reader, packet, sizeof packet, 1), TW_OK);
}

/* A section more or fewer than the table has, a tensor of another size, or more elements than agreed. */
TEST(counts_are_checked)
{
    uint32_t index[8];
    float value[8];
    size_t k = 99;
    tw_packet_reader reader;
    assert_int_equal(tw_packet_open(&reader, golden_rice, sizeof golden_rice, 1), TW_OK);
    assert_int_equal(tw_packet_close(&reader), TW_ERROR_PACKET);
    assert_int_equal(tw_packet_get_sparse(&reader, 90, 8, index, value, &k), TW_ERROR_PACKET);
    assert_int_equal(tw_packet_get_sparse(&reader, 2, 8, index, value, &k), TW_ERROR_PACKET);
    assert_int_equal(tw_packet_get_sparse(&reader, 100, 2, index, value, &k), TW_ERROR_PACKET);
    assert_int_equal(k, 99);
    assert_int_equal(tw_packet_get_sparse(&reader, 91, 3, index, value, &k), TW_OK);
    assert_int_equal(tw_packet_get_sparse(&reader, 91, 3, index, value, &k), TW_ERROR_PACKET);
    assert_int_equal(tw_packet_close(&reader), TW_OK);
    assert_int_equal(tw_packet_open(&reader, golden_one, sizeof golden_one, 1), TW_OK);
    assert_int_equal(tw_packet_get_sparse(&reader, 1000, 0, index, value, &k), TW_ERROR_PACKET);
    assert_int_equal(tw_packet_get_sparse(&reader, 300, 1, index, value, &k), TW_ERROR_PACKET);
    assert_int_equal(tw_packet_get_sparse(&reader, 301, 1, index, value, &k), TW_OK);
    assert_int_equal(tw_packet_close(&reader), TW_OK);
}

TEST(the_writer_refuses_what_no_reader_would_take)
{
    static const uint32_t twice[] = {4, 4}, far[] = {3, 10};
    static const float fine[] = {1, 2}, nan_value[] = {1, NAN}, infinite[] = {-INFINITY, 1};
    unsigned char packet[HEADER + 20];
    tw_packet_writer writer;
    tw_packet_begin(&writer, packet, sizeof packet, 0, 0, 0);
    assert_int_equal(tw_packet_put_sparse(&writer, 10, 2, twice, fine, FP32), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_packet_put_sparse(&writer, 10, 2, far, fine, FP32), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_packet_put_sparse(&writer, 11, 2, far, nan_value, FP32), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_packet_put_sparse(&writer, 11, 2, far, infinite, (tw_coding){TW_VALUES_FP16, TW_INDICES_AUTO}),
                     TW_ERROR_ARGUMENT);
    assert_int_equal(tw_packet_put_sparse(&writer, 1, 2, far, fine, FP32), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_packet_end(&writer), HEADER);
    tw_packet_begin(&writer, packet, sizeof packet, 0, 1, 0);
    assert_int_equal(tw_packet_put_sparse(&writer, 11, 2, far, fine, FP32), TW_ERROR_ARGUMENT);
    unsigned char *block;
    assert_int_equal(tw_packet_put_block(&writer, 1, &block), TW_ERROR_ARGUMENT);
    tw_packet_begin(&writer, packet, sizeof packet, 0, 0, 0);
    assert_int_equal(tw_packet_put_block(&writer, (size_t)1 << 35, &block), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_packet_put_block(&writer, 19, &block), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_packet_put_block(&writer, 18, &block), TW_OK);
    assert_ptr_equal(block, packet + HEADER + 2);
    memset(block, 0, 18);
    assert_int_equal(tw_packet_end(&writer), sizeof packet);
}

/* Every capacity from nothing to enough: refused, never written beyond. */
TEST(the_writer_stays_in_its_room)
{
    for (size_t capacity = 0; capacity <= sizeof golden_rice; capacity++) {
        unsigned char *packet = malloc(capacity + 1);
        tw_packet_writer writer;
        assert_non_null(packet);
        packet[capacity] = 0xA7;
        tw_packet_begin(&writer, packet, capacity, 258, 0, 0);
        tw_status status = tw_packet_put_sparse(&writer, 100, 3, rice_index, rice_value, FP32_RICE);
        assert_int_equal(status, capacity == sizeof golden_rice ? TW_OK : TW_ERROR_ARGUMENT);
        size_t size = tw_packet_end(&writer);
        assert_int_equal(size, capacity < HEADER ? 0 : capacity < sizeof golden_rice ? HEADER : sizeof golden_rice);
        assert_int_equal(packet[capacity], 0xA7);
        free(packet);
    }
}

/* Some packets to damage, each with the elements of its tensors. */
enum { SECTIONS = 5, MOST = 64 };
enum { LONELY = SECTIONS - 1 }; /* its tensor sends one element */
typedef struct victim {
    unsigned char *bytes;
    size_t size, n[SECTIONS];
} victim;

static victim make_victim(uint64_t seed)
{
    static const double densities[] = {0.02, 0.4, 1, 0, 1};
    victim made = {malloc(4096), 0, {40 + seed * 300, 30 + seed, 20, 5, 200}};
    tw_packet_writer writer;
    assert_non_null(made.bytes);
    tw_packet_begin(&writer, made.bytes, 4096, (uint32_t)seed, 0, 0);
    for (int i = 0; i < SECTIONS; i++) {
        support from = support_uniform(made.n[i], densities[i], seed);
        if (i == LONELY) from.k = 0, support_add(&from, 130);
        assert_true(from.k <= MOST);
        tw_coding coding = {(tw_value_code)((seed + (uint64_t)i) % TW_VALUE_CODES),
                            (tw_index_choice)(seed % TW_INDEX_CHOICES_COUNT)};
        assert_int_equal(tw_packet_put_sparse(&writer, from.n, from.k, from.index, from.value, coding), TW_OK);
        support_destroy(&from);
    }
    made.size = tw_packet_end(&writer);
    return made;
}

static tw_status open_copy(const unsigned char *bytes, size_t size)
{
    unsigned char *copy = malloc(size + !size); /* its own block, so that a sanitizer sees a read behind it */
    tw_packet_reader reader;
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    tw_status status = tw_packet_open(&reader, copy, size, 1);
    free(copy);
    return status;
}

TEST(damage_is_noticed)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        victim damaged = make_victim(seed);
        assert_int_equal(open_copy(damaged.bytes, damaged.size), TW_OK);
        for (size_t size = 0; size < damaged.size; size++)
            assert_int_equal(open_copy(damaged.bytes, size), TW_ERROR_PACKET);
        for (size_t bit = 0; bit < 8 * damaged.size; bit++) {
            damaged.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_int_equal(open_copy(damaged.bytes, damaged.size), TW_ERROR_PACKET);
            damaged.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        free(damaged.bytes);
    }
}

static void fix_checksum(unsigned char *packet, size_t size)
{
    uint32_t crc = tw_crc32c(tw_crc32c(0, packet, CRC_AT), packet + HEADER, size - HEADER);
    memcpy(packet + CRC_AT, &crc, 4);
}

/* What the reader accepts must be a set of elements that the writer takes. */
static void check_accepted(const support *got)
{
    size_t size;
    assert_true(got->k <= MOST && got->k <= got->n);
    free(encode_one(got, FP32, &size));
}

/* Reads a packet whose checksum is right, from a block of its own, into blocks of exactly MOST elements. */
static tw_status read_all(const unsigned char *bytes, size_t size, const size_t *n)
{
    unsigned char *copy = malloc(size);
    tw_packet_reader reader;
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    tw_status status = tw_packet_open(&reader, copy, size, 1);
    for (int i = 0; i < SECTIONS && status == TW_OK; i++) {
        support got = {n[i], 0, malloc(MOST * sizeof(uint32_t)), malloc(MOST * sizeof(float))};
        status = tw_packet_get_sparse(&reader, n[i], MOST, got.index, got.value, &got.k);
        if (status == TW_OK) check_accepted(&got);
        support_destroy(&got);
    }
    if (status == TW_OK) status = tw_packet_close(&reader);
    assert_true(status == TW_OK || status == TW_ERROR_PACKET);
    free(copy);
    return status;
}

/* With the checksum made right again the checks behind it stand alone. */
TEST(forged_packets_do_no_harm)
{
    size_t accepted = 0, refused = 0;
    for (uint64_t seed = 1; seed <= TW_INDEX_CHOICES_COUNT; seed++) {
        victim damaged = make_victim(seed);
        assert_int_equal(read_all(damaged.bytes, damaged.size, damaged.n), TW_OK);
        for (size_t at = 0; at < damaged.size; at++)
            for (unsigned flip = 1; flip < 256; flip++) {
                damaged.bytes[at] ^= (unsigned char)flip;
                fix_checksum(damaged.bytes, damaged.size);
                *(read_all(damaged.bytes, damaged.size, damaged.n) == TW_OK ? &accepted : &refused) += 1;
                damaged.bytes[at] ^= (unsigned char)flip;
            }
        free(damaged.bytes);
    }
    assert_true(accepted > 1000 && refused > 1000);
}

TEST(forged_noise_does_no_harm)
{
    uint64_t random = 77;
    for (int round = 0; round < 30000; round++) {
        unsigned char packet[HEADER + 64];
        size_t size = HEADER + random_word(&random) % 65, n[SECTIONS];
        memcpy(packet, golden_mixed, HEADER);
        packet[4] = SECTIONS;
        packet[8] = (unsigned char)(size - HEADER);
        for (size_t i = HEADER; i < size; i++) packet[i] = (unsigned char)(random_word(&random) & random_word(&random));
        for (int i = 0; i < SECTIONS; i++) n[i] = random_word(&random) % 100;
        fix_checksum(packet, size);
        read_all(packet, size, n);
    }
}

/* A block is not taken for indices and values, nor the reverse, nor a block of one length for one of another. */
TEST(a_section_is_what_was_expected)
{
    unsigned char packet[64], *dst;
    const unsigned char *block = NULL;
    uint32_t index[8];
    float value[8];
    size_t k = 99;
    tw_packet_writer writer;
    tw_packet_reader reader;
    tw_packet_begin(&writer, packet, sizeof packet, 0, 0, 0);
    assert_int_equal(tw_packet_put_block(&writer, 3, &dst), TW_OK);
    memcpy(dst, block_bytes, 3);
    PUT_RICE(&writer);
    put_empty(&writer, 5);
    assert_int_equal(tw_packet_put_block(&writer, 0, &dst), TW_OK);
    assert_int_equal(tw_packet_open(&reader, packet, tw_packet_end(&writer), 1), TW_OK);
    assert_int_equal(tw_packet_get_sparse(&reader, 100, 8, index, value, &k), TW_ERROR_PACKET);
    assert_int_equal(tw_packet_get_block(&reader, 2, &block), TW_ERROR_PACKET);
    assert_int_equal(tw_packet_get_block(&reader, 4, &block), TW_ERROR_PACKET);
    assert_null(block);
    assert_int_equal(tw_packet_get_block(&reader, 3, &block), TW_OK);
    assert_memory_equal(block, block_bytes, 3);
    assert_int_equal(tw_packet_get_block(&reader, 3, &block), TW_ERROR_PACKET);
    GET(&reader, 100, rice);
    assert_int_equal(tw_packet_get_block(&reader, 0, &block), TW_ERROR_PACKET);
    assert_int_equal(tw_packet_get_sparse(&reader, 5, 8, index, value, &k), TW_OK);
    assert_int_equal(tw_packet_get_sparse(&reader, 5, 8, index, value, &k), TW_ERROR_PACKET);
    assert_int_equal(tw_packet_get_block(&reader, 0, &block), TW_OK);
    assert_int_equal(tw_packet_get_block(&reader, 0, &block), TW_ERROR_PACKET);
    assert_int_equal(tw_packet_close(&reader), TW_OK);
}

/* Levels in fp32: three ones, and one that ends in these bytes. */
#define FOUR(third, last) 0, 0, 0x80, 0x3F, 0, 0, 0x80, 0x3F, 0, 0, 0x80, 0x3F, 0, 0, third, last

/* One refusal each: the body of a packet with one section for a tensor of n elements. */
TEST(each_rule_is_enforced)
{
    static const struct {
        const char *what;
        tw_status expected;
        unsigned flags, n;
        size_t size;
        unsigned char body[32];
    } cases[] = {
        {"the sound one", TW_OK, 0, 8, 6, {0x11, 0x01, 0x01, 0x04, 0x00, 0x3C}},
        {"empty under a flag", TW_OK, 1, 8, 1, {0xE0}},
        {"unknown flag", TW_ERROR_PACKET, 2, 8, 1, {0xE0}},
        {"values though not finite", TW_ERROR_PACKET, 1, 8, 6, {0x11, 0x01, 0x01, 0x04, 0x00, 0x3C}},
        {"NaN", TW_ERROR_PACKET, 0, 8, 6, {0x11, 0x01, 0x01, 0x04, 0x01, 0x7C}},
        {"infinity", TW_ERROR_PACKET, 0, 8, 6, {0x12, 0x01, 0x01, 0x04, 0x80, 0xFF}},
        {"unknown index code", TW_ERROR_PACKET, 0, 8, 6, {0x51, 0x01, 0x01, 0x04, 0x00, 0x3C}},
        {"Elias-Fano, no longer read", TW_ERROR_PACKET, 0, 8, 7, {0x41, 0x01, 0x02, 0x01, 0x05, 0x00, 0x3C}},
        {"unknown value code", TW_ERROR_PACKET, 0, 8, 6, {0x17, 0x01, 0x01, 0x04, 0x00, 0x3C}},
        {"overlong count", TW_ERROR_PACKET, 0, 8, 7, {0x11, 0x81, 0x00, 0x01, 0x04, 0x00, 0x3C}},
        {"more elements than 32 bits count", TW_ERROR_PACKET, 0, 8, 6, {0x11, 0x80, 0x80, 0x80, 0x80, 0x10}},
        {"count without end", TW_ERROR_PACKET, 0, 8, 7, {0x11, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}},
        {"more elements than the tensor", TW_ERROR_PACKET, 0, 1, 7, {0x21, 0x02, 0x00, 0x00, 0x3C, 0x00, 0x3C}},
        {"a byte left over", TW_ERROR_PACKET, 0, 8, 7, {0x11, 0x01, 0x01, 0x04, 0x00, 0x3C, 0x00}},
        {"values cut", TW_ERROR_PACKET, 0, 8, 5, {0x11, 0x01, 0x01, 0x04, 0x00}},
        {"bitmap of another length", TW_ERROR_PACKET, 0, 9, 6, {0x11, 0x01, 0x01, 0x04, 0x00, 0x3C}},
        {"bitmap with padding", TW_ERROR_PACKET, 0, 7, 6, {0x11, 0x01, 0x01, 0x80, 0x00, 0x3C}},
        {"bitmap with another count", TW_ERROR_PACKET, 0, 8, 6, {0x11, 0x01, 0x01, 0x05, 0x00, 0x3C}},
        {"all, of fewer", TW_ERROR_PACKET, 0, 8, 5, {0x21, 0x01, 0x00, 0x00, 0x3C}},
        {"all, with a block", TW_ERROR_PACKET, 0, 1, 6, {0x21, 0x01, 0x01, 0x00, 0x00, 0x3C}},
        {"Rice", TW_OK, 0, 8, 7, {0x01, 0x01, 0x02, 0x00, 0x80, 0x00, 0x3C}},
        {"Rice beyond n", TW_ERROR_PACKET, 0, 7, 7, {0x01, 0x01, 0x02, 0x00, 0x80, 0x00, 0x3C}},
        {"Rice r = 31", TW_OK, 0, 8, 10, {0x01, 0x01, 0x05, 0x1F, 0x05, 0x00, 0x00, 0x00, 0x00, 0x3C}},
        {"Rice r = 32", TW_ERROR_PACKET, 0, 8, 11, {0x01, 0x01, 0x06, 0x20, 0x05, 0, 0, 0, 0, 0x00, 0x3C}},
        {"Rice without a parameter", TW_ERROR_PACKET, 0, 8, 5, {0x01, 0x01, 0x00, 0x00, 0x3C}},
        {"Rice of zeros only", TW_ERROR_PACKET, 0, 8, 9, {0x01, 0x01, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x3C}},
        {"Rice cut in its low bits", TW_ERROR_PACKET, 0, 200, 7, {0x01, 0x01, 0x02, 0x09, 0x01, 0x00, 0x3C}},
        {"Rice with padding", TW_ERROR_PACKET, 0, 8, 7, {0x01, 0x01, 0x02, 0x00, 0x84, 0x00, 0x3C}},
        {"Rice with a byte too many", TW_ERROR_PACKET, 0, 8, 8, {0x01, 0x01, 0x03, 0x00, 0x80, 0x00, 0x00, 0x3C}},
        {"a count of nothing", TW_ERROR_PACKET, 0, 8, 3, {0x11, 0x00, 0x00}},
        {"a block", TW_ERROR_PACKET, 0, 8, 4, {0xF0, 0x02, 0x00, 0x3C}},
        {"two levels", TW_OK, 0, 8, 9, {0x15, 0x01, 0x01, 0x04, 0x80, 0x3F, 0x00, 0x40, 0x03}},
        {"equal levels", TW_OK, 0, 8, 9, {0x15, 0x01, 0x01, 0x04, 0x80, 0x3F, 0x80, 0x3F, 0x00}},
        {"levels in the wrong order", TW_ERROR_PACKET, 0, 8, 9, {0x15, 0x01, 0x01, 0x04, 0x00, 0x40, 0x80, 0x3F, 0x03}},
        {"an infinite level", TW_ERROR_PACKET, 0, 8, 9, {0x15, 0x01, 0x01, 0x04, 0x80, 0x3F, 0x80, 0x7F, 0x03}},
        {"negative levels", TW_ERROR_PACKET, 0, 8, 9, {0x15, 0x01, 0x01, 0x04, 0x80, 0xBF, 0x80, 0xBF, 0x00}},
        {"two levels with padding", TW_ERROR_PACKET, 0, 8, 9, {0x15, 0x01, 0x01, 0x04, 0x80, 0x3F, 0x00, 0x40, 0x07}},
        {"two levels cut", TW_ERROR_PACKET, 0, 8, 8, {0x15, 0x01, 0x01, 0x04, 0x80, 0x3F, 0x00, 0x40}},
        {"four levels", TW_OK, 0, 8, 21, {0x16, 0x01, 0x01, 0x04, FOUR(0x80, 0x3F), 0x03}},
        {"four levels, one infinite", TW_ERROR_PACKET, 0, 8, 21, {0x16, 0x01, 0x01, 0x04, FOUR(0x80, 0x7F), 0x00}},
        {"four levels, one NaN", TW_ERROR_PACKET, 0, 8, 21, {0x16, 0x01, 0x01, 0x04, FOUR(0xC0, 0xFF), 0x00}},
        {"four levels with padding", TW_ERROR_PACKET, 0, 8, 21, {0x16, 0x01, 0x01, 0x04, FOUR(0x80, 0x3F), 0x07}},
        {"four levels cut", TW_ERROR_PACKET, 0, 8, 20, {0x16, 0x01, 0x01, 0x04, FOUR(0x80, 0x3F)}},
        {"one", TW_OK, 0, 8, 4, {0xD1, 0x07, 0x00, 0x3C}},
        {"one of many", TW_OK, 0, 200, 5, {0xD1, 0x80, 0x01, 0x00, 0x3C}},
        {"one beyond n", TW_ERROR_PACKET, 0, 8, 4, {0xD1, 0x08, 0x00, 0x3C}},
        {"one without its index", TW_ERROR_PACKET, 0, 8, 1, {0xD1}},
        {"one with an overlong index", TW_ERROR_PACKET, 0, 8, 5, {0xD1, 0x87, 0x00, 0x00, 0x3C}},
        {"one, cut", TW_ERROR_PACKET, 0, 8, 3, {0xD1, 0x07, 0x00}},
        {"one, infinite", TW_ERROR_PACKET, 0, 8, 4, {0xD1, 0x07, 0x00, 0x7C}},
        {"one with an unknown value code", TW_ERROR_PACKET, 0, 8, 4, {0xD7, 0x07, 0x00, 0x3C}},
        {"one though not finite", TW_ERROR_PACKET, 1, 8, 4, {0xD1, 0x07, 0x00, 0x3C}},
        {"a form between the codes and one", TW_ERROR_PACKET, 0, 8, 4, {0xC1, 0x07, 0x00, 0x3C}},
        {"nothing, with a low half", TW_ERROR_PACKET, 0, 8, 1, {0xE1}},
        {"log8", TW_OK, 0, 8, 7, {0x13, 0x01, 0x01, 0x04, 0xF8, 0x03, 0xFF}},
        {"log8, infinite", TW_ERROR_PACKET, 0, 8, 7, {0x13, 0x01, 0x01, 0x04, 0xF8, 0x07, 0x7F}},
        {"log8, the largest", TW_OK, 0, 8, 7, {0x13, 0x01, 0x01, 0x04, 0xF7, 0x07, 0x7F}},
        {"log8, steps that run out", TW_OK, 0, 8, 7, {0x13, 0x01, 0x01, 0x04, 0x02, 0x00, 0x01}},
        {"sign", TW_OK, 0, 8, 7, {0x14, 0x01, 0x01, 0x04, 0x80, 0x3F, 0x01}},
        {"sign, negative", TW_ERROR_PACKET, 0, 8, 7, {0x14, 0x01, 0x01, 0x04, 0x80, 0xBF, 0x01}},
        {"sign, infinite", TW_ERROR_PACKET, 0, 8, 7, {0x14, 0x01, 0x01, 0x04, 0x80, 0x7F, 0x01}},
        {"sign, with padding", TW_ERROR_PACKET, 0, 8, 7, {0x14, 0x01, 0x01, 0x04, 0x80, 0x3F, 0x02}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char packet[64];
        uint32_t index[8];
        float value[8];
        size_t k, size = HEADER + cases[i].size;
        tw_packet_reader reader;
        memcpy(packet, golden_rice, HEADER);
        packet[3] = (unsigned char)cases[i].flags;
        packet[8] = (unsigned char)cases[i].size;
        memcpy(packet + HEADER, cases[i].body, cases[i].size);
        fix_checksum(packet, size);
        tw_status status = tw_packet_open(&reader, packet, size, 1);
        if (status == TW_OK) status = tw_packet_get_sparse(&reader, cases[i].n, 8, index, value, &k);
        if (status == TW_OK) status = tw_packet_close(&reader);
        if (status != cases[i].expected) fail_msg("%s: %s", cases[i].what, tw_last_error());
    }
}

RUN_TESTS(NULL, NULL)
