/* One bit an element: the shortest code from a density of about a third upwards. */
#include "bits.h"
#include "index_code.h"

static size_t bitmap_bound(size_t n, size_t k)
{
    (void)k;
    return n;
}

static size_t bitmap_bits(size_t n, size_t k, const uint32_t *index, unsigned *parameter)
{
    (void)index;
    *parameter = 0;
    return bitmap_bound(n, k);
}

static void bitmap_write(unsigned char *dst, size_t bytes, size_t n, size_t k, const uint32_t *index,
                         unsigned parameter)
{
    (void)n, (void)parameter;
    memset(dst, 0, bytes);
    for (size_t i = 0; i < k; i++) dst[index[i] / 8] |= (unsigned char)(1u << index[i] % 8);
}

static size_t count_ones(const unsigned char *src, size_t bytes)
{
    size_t ones = 0;
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, src + at, bytes - at < 8 ? bytes - at : 8);
        ones += (size_t)__builtin_popcountll(word);
    }
    return ones;
}

static const char *bitmap_read(const unsigned char *src, size_t bytes, size_t n, size_t k, uint32_t *index)
{
    if (bytes != (n + 7) / 8) return "its bitmap has another length than the tensor";
    if (n % 8 && src[bytes - 1] >> n % 8) return "its bitmap has padding that is not zero";
    if (count_ones(src, bytes) != k) return "its bitmap marks another number of elements than it has values";
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, src + at, bytes - at < 8 ? bytes - at : 8);
        for (; word; word &= word - 1) *index++ = (uint32_t)(8 * at + (size_t)__builtin_ctzll(word));
    }
    return NULL;
}

const tw_index_code tw_index_bitmap = {bitmap_bits, bitmap_bound, bitmap_write, bitmap_read};
