#include "index_code.h"

#include "packet.h"

/* Every element is there: nothing to write. */
static size_t all_bits(size_t n, size_t k, const uint32_t *index, unsigned *parameter)
{
    (void)index;
    *parameter = 0;
    return k == n ? 0 : TW_NO_CODE;
}

static size_t all_bound(size_t n, size_t k)
{
    (void)n, (void)k;
    return TW_NO_CODE; /* a promise for every set of k indices is what this code cannot give */
}

static void all_write(unsigned char *dst, size_t bytes, size_t k, const uint32_t *index, unsigned parameter)
{
    (void)dst, (void)bytes, (void)k, (void)index, (void)parameter;
}

static const char *all_read(const unsigned char *src, size_t bytes, size_t n, size_t k, uint32_t *index)
{
    (void)src;
    if (k != n) return "it claims every element and has another number of values";
    if (bytes != 0) return "it claims every element and yet has an index block";
    for (size_t i = 0; i < n; i++) index[i] = (uint32_t)i;
    return NULL;
}

const tw_index_code tw_index_all = {all_bits, all_bound, all_write, all_read};

const tw_index_code *const tw_index_codes[TW_INDEX_CODES] = {&tw_index_rice, &tw_index_bitmap, &tw_index_all};

tw_index_plan tw_index_choose(size_t n, size_t k, const uint32_t *index)
{
    tw_index_plan best = {0, 0, TW_NO_CODE};
    for (unsigned code = 0; code < TW_INDEX_CODES; code++) {
        tw_index_plan plan = {code, 0, 0};
        plan.bits = tw_index_codes[code]->bits(n, k, index, &plan.parameter);
        if (plan.bits < best.bits) best = plan;
    }
    return best;
}

size_t tw_index_bound(size_t n, size_t k)
{
    size_t least = TW_NO_CODE;
    for (unsigned code = 0; code < TW_INDEX_CODES; code++) {
        size_t bits = tw_index_codes[code]->bound(n, k);
        if (bits < least) least = bits;
    }
    return (least + 7) / 8;
}

size_t tw_index_bits(size_t n, size_t k, const uint32_t *index)
{
    return k ? tw_index_choose(n, k, index).bits : 0;
}
