/* Rice's code under another number, until the model is settled. */
#include "index_code.h"

static size_t adaptive_bits(size_t n, size_t k, const uint32_t *index, unsigned *parameter)
{
    return tw_index_rice.bits(n, k, index, parameter);
}

static size_t adaptive_bound(size_t n, size_t k)
{
    return tw_index_rice.bound(n, k);
}

static void adaptive_write(unsigned char *dst, size_t bytes, size_t n, size_t k, const uint32_t *index,
                           unsigned parameter)
{
    tw_index_rice.write(dst, bytes, n, k, index, parameter);
}

static const char *adaptive_read(const unsigned char *src, size_t bytes, size_t n, size_t k, uint32_t *index)
{
    return tw_index_rice.read(src, bytes, n, k, index);
}

const tw_index_code tw_index_adaptive = {adaptive_bits, adaptive_bound, adaptive_write, adaptive_read};
