#include "index_code.h"
#include <stdbool.h>

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
    [TW_INDEX_ELIAS_FANO] = &tw_index_elias_fano,
};

/* Range coding takes four times as long as Rice's code to write, and to read for every receiver. Where many elements
 * are sent, as in a warm-up, that outweighs the few per cent it saves. */
enum { ADAPTIVE_UP_TO = 32 }; /* one in so many */

/* The codes a choice allows, a bit each. Elias-Fano is never the shortest. */
static unsigned allowed(tw_index_choice choice, size_t n, size_t k)
{
    static const unsigned sets[TW_INDEX_CHOICES_COUNT] = {
        [TW_INDICES_AUTO] = 1 << TW_INDEX_RICE | 1 << TW_INDEX_BITMAP | 1 << TW_INDEX_ALL,
        [TW_INDICES_RICE] = 1 << TW_INDEX_RICE,
        [TW_INDICES_BITMAP] = 1 << TW_INDEX_BITMAP,
        [TW_INDICES_ADAPTIVE] = 1 << TW_INDEX_ADAPTIVE,
        [TW_INDICES_ELIAS_FANO] = 1 << TW_INDEX_ELIAS_FANO,
    };
    bool few = choice == TW_INDICES_AUTO && k <= n / ADAPTIVE_UP_TO;
    return sets[choice] | (few ? 1 << TW_INDEX_ADAPTIVE : 0);
}

/* And it has to be shorter by a little more than it always is when the indices lie without any pattern. */
static size_t handicap(unsigned code, tw_index_choice choice, size_t bits)
{
    return code == TW_INDEX_ADAPTIVE && choice == TW_INDICES_AUTO ? bits / 64 : 0;
}

tw_index_plan tw_index_choose(size_t n, size_t k, const uint32_t *index, tw_index_choice choice)
{
    tw_index_plan best = {0, 0, TW_NO_CODE};
    unsigned codes = allowed(choice, n, k);
    for (unsigned code = 0; code < TW_INDEX_CODES; code++) {
        tw_index_plan plan = {code, 0, 0};
        if (!(codes >> code & 1)) continue;
        plan.bits = tw_index_codes[code]->bits(n, k, index, &plan.parameter);
        if (plan.bits + handicap(code, choice, plan.bits) < best.bits) best = plan;
    }
    return best;
}

size_t tw_index_bound(size_t n, size_t k, tw_index_choice choice)
{
    size_t least = TW_NO_CODE;
    unsigned codes = allowed(choice, n, k);
    for (unsigned code = 0; code < TW_INDEX_CODES; code++) {
        size_t bits = codes >> code & 1 ? tw_index_codes[code]->bound(n, k) : TW_NO_CODE;
        if (bits < least) least = bits;
    }
    return (least + 7) / 8;
}
