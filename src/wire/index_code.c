#include "index_code.h"

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

static void all_write(unsigned char *dst, size_t bytes, size_t n, size_t k, const uint32_t *index, unsigned parameter)
{
    (void)dst, (void)bytes, (void)n, (void)k, (void)index, (void)parameter;
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

const tw_index_code *const tw_index_codes[TW_INDEX_CODES] = {
    [TW_INDEX_RICE] = &tw_index_rice,
    [TW_INDEX_BITMAP] = &tw_index_bitmap,
    [TW_INDEX_ALL] = &tw_index_all,
    [TW_INDEX_ADAPTIVE] = &tw_index_adaptive,
};

/* The codes a choice allows, a bit each; the adaptive one comes to the first choice below. */
static const unsigned allowed[TW_INDEX_CHOICES_COUNT] = {
    [TW_INDICES_AUTO] = 1 << TW_INDEX_RICE | 1 << TW_INDEX_BITMAP | 1 << TW_INDEX_ALL,
    [TW_INDICES_RICE] = 1 << TW_INDEX_RICE,
    [TW_INDICES_BITMAP] = 1 << TW_INDEX_BITMAP,
    [TW_INDICES_ADAPTIVE] = 1 << TW_INDEX_ADAPTIVE,
};

static tw_index_plan plan_code(unsigned code, size_t n, size_t k, const uint32_t *index)
{
    tw_index_plan plan = {code, 0, 0};
    plan.bits = tw_index_codes[code]->bits(n, k, index, &plan.parameter);
    return plan;
}

static tw_index_plan shortest(unsigned codes, size_t n, size_t k, const uint32_t *index)
{
    tw_index_plan best = {0, 0, TW_NO_CODE};
    for (unsigned code = 0; code < TW_INDEX_CODES; code++) {
        if (!(codes >> code & 1)) continue;
        tw_index_plan plan = plan_code(code, n, k, index);
        if (plan.bits < best.bits) best = plan;
    }
    return best;
}

/* What range coding takes longer for an index than Rice's code: to write once and, for every receiver, to read. It is
 * a fixed number, not a measured one: which code is sent must not depend on how busy a machine is. */
enum { ADAPTIVE_NANOSECONDS = 20 };

/* The bits that the line carries in that time: as many as the adaptive code must save for each index. */
static double break_even(tw_coding coding)
{
    return coding.link * ADAPTIVE_NANOSECONDS / 1000; /* a Mbit/s is a bit in 1,000 ns */
}

tw_index_plan tw_index_choose(size_t n, size_t k, const uint32_t *index, tw_coding coding)
{
    tw_index_plan best = shortest(allowed[coding.indices], n, k, index);
    double least = break_even(coding) * (double)k;
    if (coding.indices != TW_INDICES_AUTO || (double)best.bits <= least) return best; /* it could not save as much */
    tw_index_plan adaptive = plan_code(TW_INDEX_ADAPTIVE, n, k, index);
    return (double)adaptive.bits + least < (double)best.bits ? adaptive : best;
}

size_t tw_index_bound(size_t n, size_t k, tw_index_choice choice)
{
    size_t least = TW_NO_CODE;
    for (unsigned code = 0; code < TW_INDEX_CODES; code++) {
        size_t bits = allowed[choice] >> code & 1 ? tw_index_codes[code]->bound(n, k) : TW_NO_CODE;
        if (bits < least) least = bits;
    }
    return (least + 7) / 8;
}
