/* The index codes: what goes in comes out, on every kind of support; the cheapest code and parameter are found; the
 * bound holds. */
#include "support.h"

#include "index_code.h"
#include "support/parts.h"

#include <math.h>

static unsigned char *encode(const support *from, tw_index_choice choice, size_t *size)
{
    return encode_one(from, (tw_coding){TW_VALUES_FP32, choice}, size);
}

static size_t index_bits(const support *from, tw_index_choice choice)
{
    return tw_index_bits(from->n, from->k, from->index, (tw_coding){TW_VALUES_FP32, choice});
}

/* The library's reader gives back what was written. */
static void check_reader(const support *from, const unsigned char *packet, size_t size)
{
    size_t k = ~(size_t)0;
    support got = support_create(from->n, from->k);
    tw_packet_reader reader;
    assert_int_equal(tw_packet_open(&reader, packet, size, 1), TW_OK);
    assert_int_equal(tw_packet_get_sparse(&reader, from->n, from->k, got.index, got.value, &k), TW_OK);
    assert_int_equal(tw_packet_close(&reader), TW_OK);
    assert_int_equal(k, from->k);
    assert_memory_equal(got.index, from->index, k * sizeof *got.index);
    assert_memory_equal(got.value, from->value, k * sizeof *got.value);
    support_destroy(&got);
}

/* So does the plain decoder; the block is as long as was said, and in the code that was asked for. */
static void check_block(const support *from, const unsigned char *packet, tw_index_choice choice)
{
    static const unsigned codes[TW_INDEX_CHOICES_COUNT] = {0, 0, 1, 3};
    section seen = plain_section(packet + HEADER);
    support got = support_create(from->n, from->k);
    assert_int_equal(seen.k, from->k);
    if (choice != TW_INDICES_AUTO) assert_int_equal(seen.index_code, codes[choice]);
    assert_int_equal(plain_indices(&seen, from->n, got.index), index_bits(from, choice));
    assert_memory_equal(got.index, from->index, from->k * sizeof *got.index);
    assert_int_equal(seen.block_bytes, (index_bits(from, choice) + 7) / 8);
    support_destroy(&got);
}

/* Encodes, decodes with the library and with the plain decoder, and compares everything, for every choice of code.
 * Returns the packet's bytes with the code chosen by the library. */
static size_t check_round_trip(const support *from)
{
    size_t size, best = 0;
    for (tw_index_choice choice = TW_INDEX_CHOICES_COUNT; choice-- > 0; best = size) {
        if (choice == TW_INDICES_BITMAP && from->n > 1 << 24) continue;
        unsigned char *packet = encode(from, choice, &size);
        check_reader(from, packet, size);
        if (from->k)
            check_block(from, packet, choice);
        else
            assert_int_equal(index_bits(from, choice), 0);
        free(packet);
    }
    return best;
}

TEST(random_supports_survive)
{
    static const size_t sizes[] = {1, 2, 7, 8, 9, 63, 64, 65, 1000, 100000};
    static const double densities[] = {1, 0.9, 0.5, 0.3, 0.1, 0.01, 1e-3, 1e-4};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof densities / sizeof *densities; j++)
            for (uint64_t seed = 1; seed <= (uint64_t)in_part(1, 5); seed++) {
                support from = support_uniform(sizes[i], densities[j], seed);
                check_round_trip(&from);
                support_destroy(&from);
            }
}

TEST(clusters_survive)
{
    for (uint64_t seed = 1; seed <= (uint64_t)in_part(5, 20); seed++) {
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
TEST(edges_survive)
{
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
TEST(large_tensors_survive)
{
    uint64_t random = 3;
    support from = support_create((size_t)1 << 31, 300000);
    for (size_t at = 0; at < from.n && from.k < 300000; at += 1 + random_word(&random) % 20000) support_add(&from, at);
    check_round_trip(&from);
    for (from.k = 0; from.k < 100000;) support_add(&from, from.k);
    support_add(&from, from.n - 1);
    check_round_trip(&from);
    support_destroy(&from);
}

/* A reader whose tensor ends at the last index, or before it, refuses; one whose tensor ends behind it does not. */
TEST(no_index_lies_beyond_the_tensor)
{
    for (uint64_t seed = 1; seed <= (uint64_t)in_part(15, 60); seed++) {
        size_t size, k;
        support from = support_uniform(50 * seed, 1 / (double)(1 + seed % 20), seed);
        if (from.k < 2) support_add(&from, from.n - 1);
        unsigned char *packet = encode(&from, TW_INDICES_RICE, &size);
        for (size_t n = from.k; n <= from.n; n++) {
            support got = support_create(n, from.k);
            tw_packet_reader reader;
            assert_int_equal(tw_packet_open(&reader, packet, size, 1), TW_OK);
            tw_status expected = n > from.index[from.k - 1] ? TW_OK : TW_ERROR_PACKET;
            assert_int_equal(tw_packet_get_sparse(&reader, n, from.k, got.index, got.value, &k), expected);
            support_destroy(&got);
        }
        free(packet);
        support_destroy(&from);
    }
}

static size_t naive_rice_bits(const support *from, unsigned r)
{
    size_t bits = 8, next = 0;
    for (size_t i = 0; i < from->k; next = (size_t)from->index[i++] + 1) bits += ((from->index[i] - next) >> r) + 1 + r;
    return bits;
}

/* The length is the least over all parameters and codes, by trying each. One element alone takes a varint, and not the
 * head that goes with a code. */
TEST(the_cheapest_code_is_chosen)
{
    const uint64_t trials = (uint64_t)in_part(100, 400);
    size_t adaptive_taken = 0;
    for (uint64_t seed = 1; seed <= trials; seed++) {
        uint64_t random = seed;
        size_t n = 1 + random_word(&random) % 3000;
        support from = support_uniform(n, pow(10, -4 * random_unit(&random)), seed);
        if (seed % 2) support_add(&from, from.n++ + random_word(&random) % 100000), from.n += 100000;
        if (from.k == 0) support_add(&from, 0);
        size_t rice = SIZE_MAX, least = from.k == from.n ? 0 : from.n;
        for (unsigned r = 0; r < 32; r++)
            if (naive_rice_bits(&from, r) < rice) rice = naive_rice_bits(&from, r);
        assert_int_equal(index_bits(&from, TW_INDICES_RICE), rice);
        assert_int_equal(index_bits(&from, TW_INDICES_BITMAP), from.n);
        if (rice < least) least = rice;
        size_t adaptive = index_bits(&from, TW_INDICES_ADAPTIVE);
        if (adaptive < least) least = adaptive, adaptive_taken++;
        if (from.k == 1) least = *from.index < 1 << 7 ? 8 : *from.index < 1 << 14 ? 16 : 24;
        assert_int_equal(index_bits(&from, TW_INDICES_AUTO), least);
        support_destroy(&from);
    }
    assert_in_range(adaptive_taken, trials / 4, trials - 1);
}

static double information(const support *of)
{
    double n = (double)of->n, k = (double)of->k;
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2);
}

/* On uniform supports nothing can be shorter than log2 of their number, C(n, k). */
TEST(uniform_supports_cost_what_they_hold)
{
    static const double densities[] = {0.3, 1e-1, 5e-2, 2e-2, 1e-2, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4};
    for (size_t i = 0; i < sizeof densities / sizeof *densities; i++) {
        support from = support_uniform(4000000, densities[i], 11);
        double least = information(&from), adaptive = (double)index_bits(&from, TW_INDICES_ADAPTIVE);
        double automatic = (double)index_bits(&from, TW_INDICES_AUTO);
        assert_true(automatic >= least - 64 && automatic <= 1.02 * least);
        assert_true(adaptive >= least - 64 && adaptive <= 1.02 * least);
        support_destroy(&from);
    }
}

static double gaussian(uint64_t *random)
{
    return sqrt(-2 * log(1 - random_unit(random))) * cos(6.283185307179586 * random_unit(random));
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The top k of a matrix of exponential magnitudes whose rows and columns have log-normal scales. */
static support support_clustered(size_t side, size_t k, uint64_t seed)
{
    size_t n = side * side;
    double *scale = malloc(2 * side * sizeof *scale), *size = malloc(n * sizeof *size),
           *sorted = malloc(n * sizeof *size);
    support made = support_create(n, n);
    assert_true(scale && size && sorted);
    for (size_t i = 0; i < 2 * side; i++) scale[i] = exp(gaussian(&seed));
    for (size_t i = 0; i < n; i++)
        sorted[i] = size[i] = -log(1 - random_unit(&seed)) * scale[i / side] * scale[side + i % side];
    qsort(sorted, n, sizeof *sorted, descending);
    for (size_t i = 0; i < n; i++)
        if (size[i] > sorted[k]) support_add(&made, i);
    free(scale);
    free(size);
    free(sorted);
    return made;
}

static size_t bits_on(const support *from, double link)
{
    return tw_index_bits(from->n, from->k, from->index, (tw_coding){TW_VALUES_FP32, TW_INDICES_AUTO, link});
}

/* 20 ns an index: a line of 50 Mbit/s carries one bit in that time, so that the adaptive code is taken below 50 times
 * what it saves an index, and Rice's above. */
static void check_line(const support *from)
{
    size_t rice = index_bits(from, TW_INDICES_RICE), adaptive = index_bits(from, TW_INDICES_ADAPTIVE);
    double even = 50 * ((double)rice - (double)adaptive) / (double)from->k;
    assert_true(even > 10 && even < 200);
    assert_int_equal(bits_on(from, 0), adaptive);
    assert_int_equal(bits_on(from, 0.999 * even), adaptive);
    assert_int_equal(bits_on(from, 1.001 * even), rice);
    assert_int_equal(bits_on(from, 1000), rice);
    assert_int_equal(bits_on(from, 1e6), rice);
}

/* Where rows and columns differ, the adaptive code is far below what indices without a pattern need; the line says
 * whether that is worth its time. */
TEST(clusters_cost_less)
{
    static const struct {
        size_t k;
        double most; /* of log2 C(n, k), by the adaptive code */
    } cases[] = {{100000, 0.92}, {10000, 0.88}, {1000, 0.88}, {100, 0.96}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        support from = support_clustered(1000, cases[i].k, 3);
        assert_int_equal(from.k, cases[i].k);
        assert_true((double)index_bits(&from, TW_INDICES_ADAPTIVE) < cases[i].most * information(&from));
        check_line(&from);
        check_round_trip(&from);
        support_destroy(&from);
    }
}

/* Indices whose adaptive code saves exactly as much as the line makes of it stay in the quick one. */
TEST(what_is_even_stays_quick)
{
    support from = support_create(1 << 16, 1000);
    for (size_t at = 0; from.k < 1000; at += 1 + (from.k % 250 == 249 ? 12000 : 3)) support_add(&from, at);
    size_t rice = index_bits(&from, TW_INDICES_RICE), adaptive = index_bits(&from, TW_INDICES_ADAPTIVE);
    assert_true(rice > adaptive);
    assert_int_equal(bits_on(&from, (double)(rice - adaptive) / 20), rice); /* 1,000 indices: 20 bits a Mbit/s */
    assert_int_equal(bits_on(&from, (double)(rice - adaptive) / 20 - 0.04), adaptive);
    support_destroy(&from);
}

/* Sections stay below the bound of their own k and of every larger one, also where Rice coding is at its worst. */
TEST(the_bound_holds)
{
    uint64_t random = 5;
    for (int round = 0; round < in_part(400, 1500); round++) {
        size_t n = 1 + random_word(&random) % (round % 2 ? 64 : 100000), most = 1 + random_word(&random) % n;
        if (round % 3 == 0 && most > 20) most = 20;
        size_t k = 1 + random_word(&random) % most;
        support from = support_create(n, k);
        size_t start = round % 4 ? n - k : random_word(&random) % (n - k + 1); /* all at the end: one gap of n - k */
        for (size_t i = 0; i < k; i++) support_add(&from, i + 1 == k && round % 8 == 4 ? n - 1 : start + i);
        for (int i = 0; i < TW_VALUE_CODES * TW_INDEX_CHOICES_COUNT; i++) {
            size_t size;
            tw_coding coding = {(tw_value_code)(i % TW_VALUE_CODES), (tw_index_choice)(i / TW_VALUE_CODES)};
            unsigned char *packet = encode_one(&from, coding, &size);
            assert_true(size - HEADER <= tw_packet_bound_sparse(n, most, coding));
            assert_true(plain_section(packet + HEADER).block_bytes <= tw_index_bound(n, most, coding.indices));
            free(packet);
        }
        support_destroy(&from);
    }
    assert_int_equal(tw_packet_bound_sparse(10, 0, FP32), 1);
    assert_int_equal(tw_packet_bound_sparse(10, 11, FP32), tw_packet_bound_sparse(10, 10, FP32));
}

/* A small tensor's few elements are not dwarfed by what describes them. */
TEST(sections_have_little_overhead)
{
    support from = support_create(9408, 9);
    for (size_t i = 0; i < 9; i++) support_add(&from, 700 + 1000 * i);
    size_t size = check_round_trip(&from), index_bytes = (index_bits(&from, TW_INDICES_AUTO) + 7) / 8;
    assert_true(size - HEADER - 4 * 9 - index_bytes <= 6);
    from.k = 0;
    assert_int_equal(check_round_trip(&from), HEADER + 1);
    support_destroy(&from);
}

RUN_TESTS(NULL, NULL)
