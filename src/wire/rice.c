/* Rice coding of gaps (Rice 1979; Golomb 1966 with a power of two): one byte r, then for each index the number g of
 * elements skipped since the one before, as g >> r zeros, a one, and the low r bits of g. On uniformly scattered
 * indices the best r is within 2 % of the information they hold. */
#include "bits.h"
#include "index_code.h"

enum { MOST_R = 31, PARAMETER_BITS = 8 };

/* The bits of the gaps under r, without the parameter. All gaps together are no more than the last index: 32 bits hold
 * their sum. */
static size_t gap_bits(size_t k, const uint32_t *index, unsigned r)
{
    uint32_t zeros = index[0] >> r;
    for (size_t i = 1; i < k; i++) zeros += (index[i] - index[i - 1] - 1) >> r;
    return k * (r + 1) + zeros;
}

/* From r to r + 1 the cost changes by k - sum(ceil((g >> r) / 2)), which only grows with r: the cost is convex, and
 * walking downhill from the mean gap's logarithm ends in the one minimum (the lower r of two equal ones). */
static size_t rice_bits(size_t n, size_t k, const uint32_t *index, unsigned *parameter)
{
    (void)n;
    size_t gap = (index[k - 1] + (size_t)1 - k) / k;
    unsigned r = gap ? tw_floor_log2(gap) : 0;
    size_t least = gap_bits(k, index, r), other;
    while (r > 0 && (other = gap_bits(k, index, r - 1)) <= least) r--, least = other;
    while (r < MOST_R && (other = gap_bits(k, index, r + 1)) < least) r++, least = other;
    *parameter = r;
    return PARAMETER_BITS + least;
}

/* The n - k elements that are not there are at most (n - k) >> r zeros. Grows with k for every r, so for the best. */
static size_t rice_bound(size_t n, size_t k)
{
    size_t least = TW_NO_CODE;
    for (unsigned r = 0; r <= MOST_R; r++) {
        size_t bits = k * (r + 1) + ((n - k) >> r);
        if (bits < least) least = bits;
    }
    return PARAMETER_BITS + least;
}

static void write_gap(tw_bit_writer *writer, uint32_t gap, unsigned r)
{
    tw_bits_put_unary(writer, gap >> r, gap & (((uint32_t)1 << r) - 1), r);
}

enum { TOGETHER = 4 }; /* codes that are put at a time where they are short: a put waits for the one before it */

static void write_gaps(tw_bit_writer *writer, const uint32_t gap[TOGETHER], unsigned r)
{
    uint64_t bits = 0, length = 0;
    for (size_t j = 0; j < TOGETHER; j++) length += (gap[j] >> r) + (uint64_t)r + 1;
    if (length > TW_BITS_PUT) {
        for (size_t j = 0; j < TOGETHER; j++) write_gap(writer, gap[j], r);
        return;
    }
    for (size_t j = TOGETHER; j-- > 0;) {
        uint32_t zeros = gap[j] >> r, low = gap[j] & (((uint32_t)1 << r) - 1);
        bits = (bits << r << 1 | (uint64_t)low << 1 | 1) << zeros;
    }
    tw_bits_put(writer, bits, (unsigned)length);
}

static void rice_write(unsigned char *dst, size_t bytes, size_t n, size_t k, const uint32_t *index, unsigned parameter)
{
    (void)n;
    tw_bit_writer writer = {dst, dst + bytes, 0, 0};
    uint32_t gap[TOGETHER], next = 0;
    size_t held = 0;
    tw_bits_put(&writer, parameter, PARAMETER_BITS);
    for (size_t i = 0; i < k; next = index[i++] + 1) {
        gap[held++] = index[i] - next;
        if (held < TOGETHER) continue;
        write_gaps(&writer, gap, parameter);
        held = 0;
    }
    for (size_t j = 0; j < held; j++) write_gap(&writer, gap[j], parameter);
    tw_bits_flush(&writer);
}

/* Reads `count` codes of one look at the block, where each waits for no more than a shift by the one before it. *next,
 * the least index that may follow, goes on. Returns the bits that they took: where they are more than TW_BITS_PEEKED,
 * the look did not show all of them, and what was read is nothing. */
static unsigned read_codes(uint64_t look, unsigned r, size_t count, uint64_t *next, uint32_t *index)
{
    const uint64_t low = ((uint64_t)1 << r) - 1;
    int64_t window = (int64_t)(look | (uint64_t)1 << 63); /* ones come in from above, so that there always is one */
    unsigned taken = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned zeros = (unsigned)__builtin_ctzll((uint64_t)window);
        uint64_t place = *next + ((uint64_t)zeros << r) + ((uint64_t)window >> zeros >> 1 & low);
        index[i] = (uint32_t)place;
        *next = place + 1;
        window >>= (zeros + 1 + r) % 64;
        taken += zeros + 1 + r;
    }
    return taken;
}

/* Reads one code, however long. *next is then beyond n if the index is not below it. */
static void read_code(tw_bit_reader *reader, size_t n, unsigned r, uint64_t *next)
{
    uint64_t zeros = tw_bits_take_unary(reader);
    uint64_t gap = zeros > n >> r ? n : (zeros << r) + (tw_bits_peek(reader) & (((uint64_t)1 << r) - 1));
    reader->position += r;
    *next += gap + 1;
}

/* Bits that the codes of a look are meant to take, with two zeros each: few take more than it shows. */
enum { LOOK = 48 };

static const char *rice_read(const unsigned char *src, size_t bytes, size_t n, size_t k, uint32_t *index)
{
    if (bytes == 0) return "its index block lacks the Rice parameter";
    unsigned r = src[0];
    if (r > MOST_R) return "its Rice parameter is above 31";
    size_t together = LOOK / (r + 3);
    uint64_t next = 0, beyond;
    tw_bit_reader reader = {src + 1, bytes - 1, 0};
    for (size_t i = 0; i < k;) {
        beyond = next;
        unsigned taken = k - i < together ? LOOK : read_codes(tw_bits_peek(&reader), r, together, &beyond, index + i);
        if (k - i >= together && taken <= TW_BITS_PEEKED && beyond <= n) {
            reader.position += taken;
            next = beyond;
            i += together;
            continue;
        }
        read_code(&reader, n, r, &next);
        if (next > n) return "an index lies beyond the tensor or behind the end of the index block";
        index[i++] = (uint32_t)(next - 1);
    }
    return tw_bits_ended(&reader) ? NULL : "its index block has another length, or padding that is not zero";
}

const tw_index_code tw_index_rice = {rice_bits, rice_bound, rice_write, rice_read};
