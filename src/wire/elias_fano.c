/* Elias-Fano (Elias 1974, Fano 1971): the low l bits of every index side by side, so that any one of them can be looked
 * up, and their high parts as one unary string. Half a bit an index above Rice's. The block: one byte l, the k low
 * parts, then for each index as many zeros as its high part exceeds the one before, and a one. */
#include "bits.h"
#include "index_code.h"

enum { MOST_L = 31, PARAMETER_BITS = 8 };

/* The least over l of the bits for k indices, the last of which is `last`; grows with both. */
static size_t least_bits(size_t last, size_t k, unsigned *l)
{
    size_t least = TW_NO_CODE;
    for (unsigned low = 0; low <= MOST_L; low++) {
        size_t bits = k * (low + 1) + (last >> low);
        if (bits < least) least = bits, *l = low;
    }
    return PARAMETER_BITS + least;
}

static size_t elias_fano_bound(size_t n, size_t k)
{
    unsigned l;
    return least_bits(n - 1, k, &l);
}

static size_t elias_fano_bits(size_t n, size_t k, const uint32_t *index, unsigned *parameter)
{
    (void)n;
    return least_bits(index[k - 1], k, parameter);
}

static void elias_fano_write(unsigned char *dst, size_t bytes, size_t n, size_t k, const uint32_t *index,
                             unsigned parameter)
{
    (void)n;
    uint32_t mask = ((uint32_t)1 << parameter) - 1, high = 0;
    tw_bit_writer writer = {dst, dst + bytes, 0, 0};
    tw_bits_put(&writer, parameter, PARAMETER_BITS);
    for (size_t i = 0; i < k; i++) tw_bits_put(&writer, index[i] & mask, parameter);
    for (size_t i = 0; i < k; high = index[i++] >> parameter)
        tw_bits_put_unary(&writer, (index[i] >> parameter) - high, 0, 0);
    tw_bits_flush(&writer);
}

static const char *elias_fano_read(const unsigned char *src, size_t bytes, size_t n, size_t k, uint32_t *index)
{
    if (bytes == 0) return "its index block lacks the Elias-Fano parameter";
    unsigned l = src[0];
    if (l > MOST_L) return "its Elias-Fano parameter is above 31";
    uint64_t mask = ((uint64_t)1 << l) - 1, high = 0, next = 0; /* next: the least index that may follow */
    tw_bit_reader low = {src + 1, bytes - 1, 0}, ones = {src + 1, bytes - 1, k * l};
    for (size_t i = 0; i < k; i++, low.position += l) {
        uint64_t zeros = tw_bits_take_unary(&ones);
        if (zeros > n >> l) return "an index lies beyond the tensor or behind the end of the index block";
        high += zeros;
        uint64_t place = (high << l) | (tw_bits_peek(&low) & mask);
        if (place < next || place >= n) return "its indices do not ascend, or one lies beyond the tensor";
        index[i] = (uint32_t)place;
        next = place + 1;
    }
    return tw_bits_ended(&ones) ? NULL : "its index block has another length, or padding that is not zero";
}

const tw_index_code tw_index_elias_fano = {elias_fano_bits, elias_fano_bound, elias_fano_write, elias_fano_read};
