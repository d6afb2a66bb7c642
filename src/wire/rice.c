/* Rice coding of gaps (Rice 1979; Golomb 1966 with a power of two): one byte r, then for each index the number g of
 * elements skipped since the one before, as g >> r zeros, a one, and the low r bits of g. On uniformly scattered
 * indices the best r is within 2 % of the information they hold. */
#include "bits.h"
#include "index_code.h"

enum { MOST_R = 31, PARAMETER_BITS = 8 };

/* The bits of the gaps under r, without the parameter. */
static size_t gap_bits(size_t k, const uint32_t *index, unsigned r)
{
    size_t zeros = index[0] >> r;
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

static void rice_write(unsigned char *dst, size_t bytes, size_t n, size_t k, const uint32_t *index, unsigned parameter)
{
    (void)n;
    tw_bit_writer writer = {dst, dst + bytes, 0, 0};
    tw_bits_put(&writer, parameter, PARAMETER_BITS);
    write_gap(&writer, index[0], parameter);
    for (size_t i = 1; i < k; i++) write_gap(&writer, index[i] - index[i - 1] - 1, parameter);
    tw_bits_flush(&writer);
}

static const char *rice_read(const unsigned char *src, size_t bytes, size_t n, size_t k, uint32_t *index)
{
    if (bytes == 0) return "its index block lacks the Rice parameter";
    unsigned r = src[0];
    if (r > MOST_R) return "its Rice parameter is above 31";
    uint64_t low = ((uint64_t)1 << r) - 1, next = 0; /* next: the least index that may follow */
    tw_bit_reader reader = {src + 1, bytes - 1, 0};
    for (size_t i = 0; i < k; i++) {
        uint64_t zeros = tw_bits_take_unary(&reader);
        if (zeros > n >> r) return "an index lies beyond the tensor or behind the end of the index block";
        uint64_t place = next + (zeros << r) + (tw_bits_peek(&reader) & low);
        if (place >= n) return "an index lies beyond the tensor";
        reader.position += r;
        index[i] = (uint32_t)place;
        next = place + 1;
    }
    return tw_bits_ended(&reader) ? NULL : "its index block has another length, or padding that is not zero";
}

const tw_index_code tw_index_rice = {rice_bits, rice_bound, rice_write, rice_read};
