/* The index codes: what goes in comes out, on every kind of support; the cheapest code and parameter are found; the
 * bound holds. */
#include "support.h"

#include "index_code.h"

#include <math.h>

/* Encodes, decodes with the library and with the plain decoder, and compares everything. Returns the packet's bytes. */
static size_t check_round_trip(const support *from)
{
    size_t size, k = ~(size_t)0;
    unsigned char *packet = encode_one(from, FP32, &size);
    support got = support_create(from->n, from->k);
    tw_packet_reader reader;
    assert_int_equal(tw_packet_open(&reader, packet, size), TW_OK);
    assert_int_equal(tw_packet_get_sparse(&reader, from->n, from->k, got.index, got.value, &k), TW_OK);
    assert_int_equal(tw_packet_close(&reader), TW_OK);
    assert_int_equal(k, from->k);
    assert_memory_equal(got.index, from->index, k * sizeof *got.index);
    assert_memory_equal(got.value, from->value, k * sizeof *got.value);

    section seen = plain_section(packet + HEADER);
    assert_int_equal(seen.k, from->k);
    if (k) {
        memset(got.index, 0xFF, k * sizeof *got.index);
        assert_int_equal(plain_indices(&seen, from->n, got.index), tw_index_bits(from->n, k, from->index, FP32));
        assert_memory_equal(got.index, from->index, k * sizeof *got.index);
        assert_int_equal(seen.block_bytes, (tw_index_bits(from->n, k, from->index, FP32) + 7) / 8);
    } else {
        assert_int_equal(tw_index_bits(from->n, 0, from->index, FP32), 0);
    }
    support_destroy(&got);
    free(packet);
    return size;
}

static void random_supports_survive(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 7, 8, 9, 63, 64, 65, 1000, 100000};
    static const double densities[] = {1, 0.9, 0.5, 0.3, 0.1, 0.01, 1e-3, 1e-4};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof densities / sizeof *densities; j++)
            for (uint64_t seed = 1; seed <= 5; seed++) {
                support from = support_uniform(sizes[i], densities[j], seed);
                check_round_trip(&from);
                support_destroy(&from);
            }
}

static void clusters_survive(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t random = seed;
        support from = support_create(1 << 20, 1 << 16);
        for (size_t at = random_word(&random) % 100000; at + 64 < from.n && from.k + 64 < 1 << 16;
             at += 64 + random_word(&random) % 150000)
            for (size_t i = 0; i < 64; i += 1 + random_word(&random) % 3) support_add(&from, at + i);
        check_round_trip(&from);
        support_destroy(&from);
    }
}

/* One or two elements at the edges; n up to 2^31; gaps that need every parameter up to 31. */
static void edges_survive(void **state)
{
    (void)state;
    for (unsigned power = 0; power <= 31; power++) {
        size_t n = (size_t)1 << power, picks[4] = {0, n / 2, n - 1, n / 3};
        for (int i = 0; i < 4; i++) {
            support from = support_create(n, 2);
            check_round_trip(&from);
            support_add(&from, picks[i]);
            check_round_trip(&from);
            if (picks[i] < n - 1) support_add(&from, n - 1);
            check_round_trip(&from);
            support_destroy(&from);
        }
    }
}

/* Two billion elements at a density of 1e-4, and one far outlier behind a dense cluster: a long run of zeros. */
static void large_tensors_survive(void **state)
{
    (void)state;
    uint64_t random = 3;
    support from = support_create((size_t)1 << 31, 300000);
    for (size_t at = 0; at < from.n && from.k < 300000; at += 1 + random_word(&random) % 20000) support_add(&from, at);
    check_round_trip(&from);
    for (from.k = 0; from.k < 100000;) support_add(&from, from.k);
    support_add(&from, from.n - 1);
    check_round_trip(&from);
    support_destroy(&from);
}

static size_t naive_rice_bits(const support *from, unsigned r)
{
    size_t bits = 8, next = 0;
    for (size_t i = 0; i < from->k; next = (size_t)from->index[i++] + 1) bits += ((from->index[i] - next) >> r) + 1 + r;
    return bits;
}

/* The length is the least over all parameters and codes, by trying each. */
static void the_cheapest_code_is_chosen(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        uint64_t random = seed;
        size_t n = 1 + random_word(&random) % 3000;
        support from = support_uniform(n, pow(10, -4 * random_unit(&random)), seed);
        if (seed % 2) support_add(&from, from.n++ + random_word(&random) % 100000), from.n += 100000;
        size_t least = from.k == from.n ? 0 : from.n;
        for (unsigned r = 0; r < 32; r++)
            if (naive_rice_bits(&from, r) < least) least = naive_rice_bits(&from, r);
        if (from.k) assert_int_equal(tw_index_bits(from.n, from.k, from.index, FP32), least);
        support_destroy(&from);
    }
}

/* On uniform supports nothing can be shorter than log2 of their number, C(n, k). */
static void uniform_supports_cost_what_they_hold(void **state)
{
    (void)state;
    static const double densities[] = {1e-1, 1e-2, 1e-3, 1e-4};
    for (int i = 0; i < 4; i++) {
        support from = support_uniform(4000000, densities[i], 11);
        double n = (double)from.n, k = (double)from.k;
        double information = (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2);
        double bits = (double)tw_index_bits(from.n, from.k, from.index, FP32);
        assert_true(bits >= information - 64 && bits <= 1.03 * information);
        support_destroy(&from);
    }
}

/* Sections stay below the bound of their own k and of every larger one, also where Rice coding is at its worst. */
static void the_bound_holds(void **state)
{
    (void)state;
    uint64_t random = 5;
    for (int round = 0; round < 3000; round++) {
        size_t n = 1 + random_word(&random) % (round % 2 ? 64 : 100000), most = 1 + random_word(&random) % n;
        if (round % 3 == 0 && most > 20) most = 20;
        size_t k = 1 + random_word(&random) % most;
        support from = support_create(n, k);
        size_t start = round % 4 ? n - k : random_word(&random) % (n - k + 1); /* all at the end: one gap of n - k */
        for (size_t i = 0; i < k; i++) support_add(&from, i + 1 == k && round % 8 == 4 ? n - 1 : start + i);
        for (tw_value_code code = 0; code < TW_VALUE_CODES; code++) {
            size_t size;
            tw_coding coding = {code, TW_INDICES_AUTO};
            unsigned char *packet = encode_one(&from, coding, &size);
            assert_true(size - HEADER <= tw_packet_bound_sparse(n, most, coding));
            assert_true(plain_section(packet + HEADER).block_bytes <= tw_index_bound(n, most, TW_INDICES_AUTO));
            free(packet);
        }
        support_destroy(&from);
    }
    assert_int_equal(tw_packet_bound_sparse(10, 0, FP32), 1);
    assert_int_equal(tw_packet_bound_sparse(10, 11, FP32), tw_packet_bound_sparse(10, 10, FP32));
}

/* A small tensor's few elements are not dwarfed by what describes them. */
static void sections_have_little_overhead(void **state)
{
    (void)state;
    support from = support_create(9408, 9);
    for (size_t i = 0; i < 9; i++) support_add(&from, 700 + 1000 * i);
    size_t size = check_round_trip(&from), index_bytes = (tw_index_bits(from.n, 9, from.index, FP32) + 7) / 8;
    assert_true(size - HEADER - 4 * 9 - index_bytes <= 6);
    from.k = 0;
    assert_int_equal(check_round_trip(&from), HEADER + 1);
    support_destroy(&from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_supports_survive),
        cmocka_unit_test(clusters_survive),
        cmocka_unit_test(edges_survive),
        cmocka_unit_test(large_tensors_survive),
        cmocka_unit_test(the_cheapest_code_is_chosen),
        cmocka_unit_test(uniform_supports_cost_what_they_hold),
        cmocka_unit_test(the_bound_holds),
        cmocka_unit_test(sections_have_little_overhead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
