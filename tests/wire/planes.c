/* Numbers without loss: every one comes back, a second reader written from docs/wire-format.md sees the same, and a
 * block takes what its bytes' entropy says. Blocks that nobody wrote are refused, or are numbers, and nothing else. */
#include "planes.h"
#include "support.h"

#include <math.h>

enum { MANY = 20000, GUARD = 64, SEED = 5 };

/* A block as it is, in memory of exactly its size, so that a sanitizer sees a byte beyond it. */
typedef struct block {
    unsigned char *bytes;
    size_t size;
} block;

static block written(const void *numbers, size_t count, size_t width)
{
    unsigned char *room = malloc(tw_planes_bound(count, width));
    assert_non_null(room);
    size_t size = tw_planes_write(room, numbers, count, width);
    assert_true(size <= tw_planes_bound(count, width));
    block made = {malloc(size), size};
    assert_non_null(made.bytes);
    memcpy(made.bytes, room, size);
    free(room);
    return made;
}

/* ---- the second reader ------------------------------------------------------------------------------------------- */

typedef struct page {
    unsigned first, last, width[256];
} page;

static const unsigned char *plain_frequencies_of(const unsigned char *at, page *to)
{
    to->first = *at++;
    to->last = *at++;
    for (unsigned v = to->first; v <= to->last && to->first < to->last; v++, at += 2)
        to->width[v] = at[0] + 256u * at[1];
    return at;
}

static const unsigned char *plain_coded(const unsigned char *at, unsigned char *values, size_t count)
{
    page by = {0};
    at = plain_frequencies_of(at, &by);
    if (by.first == by.last) {
        memset(values, (int)by.first, count);
        return at;
    }
    section stream = {.block = at + 4, .block_bytes = at[0] + 256u * at[1] + 65536u * at[2] + 16777216u * at[3]};
    plain_interval in = {0, UINT64_MAX, 0};
    for (; in.taken < 8; in.taken++) in.code = in.code * 256 + plain_byte(&stream, in.taken);
    for (size_t i = 0; i < count; i++) {
        uint64_t number = in.code / (in.range >> 12), below = 0;
        unsigned v = by.first;
        while (number >= below + by.width[v]) below += by.width[v++];
        plain_narrow(&in, &stream, 12, below, by.width[v]);
        values[i] = (unsigned char)v;
    }
    return stream.block + stream.block_bytes;
}

/* Whole numbers of 64 bits, turned back. */
static void plain_read(const block *from, uint64_t *numbers, size_t count, size_t width)
{
    const unsigned char *at = from->bytes + 1;
    unsigned char *values = malloc(count + 1);
    memset(numbers, 0, count * sizeof *numbers);
    for (size_t p = 0; p < width; p++) {
        if (from->bytes[0] >> p & 1) {
            at = plain_coded(at, values, count);
        } else {
            for (size_t i = 0; i < count; i++) values[i] = from->bytes[0] ? *at++ : at[i * width + p];
        }
        for (size_t i = 0; i < count; i++) numbers[i] |= (uint64_t)values[i] << 8 * p;
    }
    if (!from->bytes[0]) at += count * width;
    for (size_t i = 0; from->bytes[0] && i < count; i++)
        numbers[i] = numbers[i] >> 1 | (numbers[i] & 1) << (8 * width - 1);
    assert_true(at == from->bytes + from->size);
    free(values);
}

/* ---- coming back ------------------------------------------------------------------------------------------------- */

static size_t assert_comes_back(const void *numbers, size_t count, size_t width)
{
    block made = written(numbers, count, width);
    unsigned char *back = malloc(count * width + GUARD);
    uint64_t *second = malloc((count + 1) * sizeof *second);
    assert_true(back && second);
    memset(back, 0xA5, count * width + GUARD);
    assert_null(tw_planes_read(made.bytes, made.size, back, count, width));
    if (count) assert_memory_equal(back, numbers, count * width);
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(back[count * width + i], 0xA5);
    plain_read(&made, second, count, width);
    for (size_t i = 0; i < count; i++)
        assert_memory_equal(second + i, (const unsigned char *)numbers + i * width, width);
    free(back);
    free(second);
    free(made.bytes);
    return made.size;
}

static float normal(uint64_t *seed)
{
    double length = sqrt(-2 * log(1 - random_unit(seed)));
    return (float)(0.02 * length * cos(6.283185307179586 * random_unit(seed)));
}

static void fill_normal(float *values, size_t count)
{
    uint64_t seed = SEED;
    for (size_t i = 0; i < count; i++) values[i] = normal(&seed);
}

TEST(every_class_of_numbers_comes_back)
{
    static const uint32_t kinds[] = {0,          0x80000000, 1,          0x807FFFFF, 0x00800000,
                                     0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001,
                                     0x7FC00000, 0xFFFFFFFF, 0xFFC12345, 0x3F800000};
    uint32_t values[MANY];
    uint64_t seed = SEED;
    for (size_t i = 0; i < MANY; i++) values[i] = kinds[random_word(&seed) % (sizeof kinds / sizeof *kinds)];
    assert_true(assert_comes_back(values, MANY, sizeof *values) < sizeof values / 2);
    for (size_t i = 0; i < MANY; i++) values[i] = (uint32_t)random_word(&seed);
    assert_int_equal(assert_comes_back(values, MANY, sizeof *values), sizeof values + 1);
}

TEST(every_size_and_width_comes_back)
{
    static float values[MANY];
    fill_normal(values, MANY);
    for (size_t width = 1; width <= TW_PLANES_MOST; width++) {
        for (size_t count = 0; count < 300; count++) assert_comes_back(values, count, width);
        assert_comes_back(values, sizeof values / width, width);
    }
}

/* Of 0 to 256 different bytes, however unequally they occur. */
TEST(every_distribution_comes_back)
{
    static unsigned char values[MANY];
    uint64_t seed = SEED;
    for (unsigned different = 1; different <= 256; different = different < 16 ? different + 1 : different * 2) {
        for (int skew = 0; skew < 4; skew++) {
            for (size_t i = 0; i < MANY; i++) {
                double u = random_unit(&seed);
                for (int k = 0; k < skew; k++) u *= u;
                values[i] = (unsigned char)(255 - (unsigned)(u * different));
            }
            assert_comes_back(values, MANY, 1);
            assert_comes_back(values, MANY / 4, 4);
        }
    }
    memset(values, 7, sizeof values);
    values[MANY - 1] = 9; /* once in all: it has a part even so */
    assert_true(assert_comes_back(values, MANY, 1) < 64);
}

/* ---- what it takes ----------------------------------------------------------------------------------------------- */

TEST(zeros_take_next_to_nothing)
{
    static const float zeros[MANY];
    assert_int_equal(assert_comes_back(zeros, MANY, sizeof *zeros), 1 + 4 * 2);
}

/* By hand: 1 is 3F 80 00 00, and turned left by a bit 7F 00 00 00. */
TEST(ones_are_what_the_page_says)
{
    const float ones[] = {1, 1, 1};
    static const unsigned char expected[] = {0x0F, 0, 0, 0, 0, 0, 0, 0x7F, 0x7F};
    block made = written(ones, 3, sizeof *ones);
    assert_int_equal(made.size, sizeof expected);
    assert_memory_equal(made.bytes, expected, sizeof expected);
    free(made.bytes);
}

static double entropy_of_exponents(const float *values, size_t count)
{
    double counts[256] = {0}, bits = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t word;
        memcpy(&word, &values[i], sizeof word);
        counts[word >> 23 & 255]++;
    }
    for (int v = 0; v < 256; v++)
        if (counts[v] > 0) bits -= counts[v] * log2(counts[v] / (double)count);
    return bits;
}

/* The exponents as their entropy says, the other three bytes as they are. */
TEST(weights_take_their_entropy)
{
    static float values[MANY];
    fill_normal(values, MANY);
    double least = 3.0 * MANY + entropy_of_exponents(values, MANY) / 8;
    size_t bytes = assert_comes_back(values, MANY, sizeof *values);
    assert_true((double)bytes >= least && (double)bytes < least * 1.002 + 128);
    assert_true((double)bytes < 0.84 * sizeof values);
    unsigned char upper[2 * MANY];
    for (size_t i = 0; i < MANY; i++) memcpy(upper + 2 * i, (unsigned char *)&values[i] + 2, 2);
    assert_true((double)assert_comes_back(upper, MANY, 2) < 0.67 * sizeof upper);
}

/* A plane that would save less than a sixteenth stays as it is. */
TEST(what_gains_little_stays_as_it_is)
{
    static unsigned char values[MANY];
    uint64_t seed = SEED;
    for (size_t i = 0; i < MANY; i++) values[i] = (unsigned char)(random_word(&seed) % 200); /* 7.64 bits */
    assert_int_equal(assert_comes_back(values, MANY, 1), MANY + 1);
    for (size_t i = 0; i < MANY; i++) values[i] = (unsigned char)(random_word(&seed) % 128);
    assert_true(assert_comes_back(values, MANY, 1) < MANY - MANY / 16);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static const char *read_into(const block *from, size_t size, size_t count, size_t width)
{
    unsigned char *exact = malloc(size + 1), *back = malloc(count * width + 1);
    assert_true(exact && back);
    memcpy(exact, from->bytes, size < from->size ? size : from->size);
    if (size > from->size) exact[from->size] = 0;
    back[count * width] = 0xA5;
    const char *wrong = tw_planes_read(exact, size, back, count, width);
    assert_int_equal(back[count * width], 0xA5);
    free(exact);
    free(back);
    return wrong;
}

TEST(every_other_length_is_refused)
{
    float values[500];
    fill_normal(values, 500);
    for (size_t count = 0; count <= 500; count += 100) {
        block made = written(values, count, sizeof *values);
        for (size_t size = 0; size < made.size; size++) assert_non_null(read_into(&made, size, count, sizeof *values));
        assert_non_null(read_into(&made, made.size + 1, count, sizeof *values));
        assert_null(read_into(&made, made.size, count, sizeof *values));
        free(made.bytes);
    }
}

TEST(every_changed_bit_is_refused_or_other_numbers)
{
    float values[500];
    fill_normal(values, 500);
    block made = written(values, 500, sizeof *values);
    for (size_t bit = 0; bit < 8 * made.size; bit++) {
        made.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        (void)read_into(&made, made.size, 500, sizeof *values);
        made.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    free(made.bytes);
}

static void assert_refused(const unsigned char *bytes, size_t size, size_t count, size_t width, const char *why)
{
    unsigned char *copy = malloc(size + 1);
    memcpy(copy, bytes, size);
    const char *wrong = read_into(&(block){copy, size}, size, count, width);
    assert_non_null(wrong);
    assert_string_equal(wrong, why);
    free(copy);
}

#define REFUSED(count, width, why, ...)                                                                                \
    assert_refused((const unsigned char[]){__VA_ARGS__}, sizeof((const unsigned char[]){__VA_ARGS__}), count, width,   \
                   why)

TEST(forged_blocks_are_refused_by_what_is_wrong)
{
    REFUSED(2, 1, "it codes bytes that its numbers have not", 2, 0, 0);
    REFUSED(2, 1, "its last value comes before its first", 1, 9, 8);
    REFUSED(2, 1, "its frequencies do not add up to one", 1, 8, 9, 0, 8, 1, 8, 1, 0, 0, 0, 0);
    REFUSED(2, 1, "its frequencies do not add up to one", 1, 8, 9, 0, 8, 255, 7, 1, 0, 0, 0, 0);
    REFUSED(2, 1, "its frequencies do not add up to one", 1, 8, 9, 255, 255, 1, 16, 1, 0, 0, 0, 0);
    REFUSED(2, 1, "it ends before its numbers do", 1, 8);
    REFUSED(2, 1, "it ends before its numbers do", 1, 8, 99, 0, 8);
    REFUSED(2, 1, "it ends before its numbers do", 1, 8, 9, 0, 8, 0, 8, 0);
    REFUSED(2, 1, "it ends before its numbers do", 1, 8, 9, 0, 8, 0, 8, 2, 0, 0, 0, 0);
    REFUSED(2, 1, "it ends before its numbers do", 1, 8, 9, 0, 8, 0, 8, 255, 255, 255, 255, 0);
    REFUSED(2, 1, "it has another length, or another end, than it should", 1, 8, 9, 0, 8, 0, 8, 2, 0, 0, 0, 0, 0);
    REFUSED(2, 1, "it holds a number that no encoder writes", 1, 8, 9, 0, 8, 0, 8, 8, 0, 0, 0, 255, 255, 255, 255, 255,
            255, 255, 255);
    REFUSED(2, 1, "something follows its numbers", 1, 8, 8, 8);
    REFUSED(2, 1, "it has another length than its numbers", 0, 8);
}

RUN_TESTS(NULL, NULL)
