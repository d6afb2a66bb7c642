/* Values: rounding is what the receiver sees, and never makes an infinity. */
#include "half.h"
#include "support.h"

#include <float.h>
#include <math.h>

static float rounded(float x, tw_value_code code)
{
    tw_values_round(&x, 1, code);
    return x;
}

TEST(fp32_is_exact)
{
    assert_true(rounded(0.1f, TW_VALUES_FP32) == 0.1f);
    assert_true(rounded(-3.4e38f, TW_VALUES_FP32) == -3.4e38f);
}

TEST(known_values_round_to_the_nearest_even)
{
    assert_true(rounded(1 + 0x1p-11f, TW_VALUES_FP16) == 1);
    assert_true(rounded(1 + 0x3p-11f, TW_VALUES_FP16) == 1 + 0x1p-9f);
    assert_true(rounded(0x1.8p-25f, TW_VALUES_FP16) == 0x1p-24f);
    assert_true(rounded(0x1p-25f, TW_VALUES_FP16) == 0);
    assert_true(rounded(1 + 0x1p-8f, TW_VALUES_BF16) == 1);
    assert_true(rounded(-1 - 0x3p-8f, TW_VALUES_BF16) == -1 - 0x1p-6f);
}

TEST(overflow_becomes_the_largest_finite_value)
{
    assert_true(rounded(65504, TW_VALUES_FP16) == 65504);
    assert_true(rounded(65520, TW_VALUES_FP16) == 65504);
    assert_true(rounded(-1e30f, TW_VALUES_FP16) == -65504);
    assert_true(rounded(3.4028235e38f, TW_VALUES_BF16) == 0x1.FEp127f);
    assert_true(rounded(-3.4028235e38f, TW_VALUES_BF16) == -0x1.FEp127f);
}

TEST(what_is_not_finite_stays_so)
{
    for (tw_value_code code = 0; code < TW_VALUES_LOG8; code++) {
        assert_true(isnan(rounded(NAN, code)));
        assert_true(rounded(INFINITY, code) == INFINITY);
        assert_true(rounded(-INFINITY, code) == -INFINITY);
    }
    float log8[] = {1, INFINITY, 3}, sign[] = {1, -INFINITY, 3}, lm2[] = {1, NAN, 3}, ref2[] = {1, NAN, 3};
    tw_values_round(log8, 3, TW_VALUES_LOG8);
    tw_values_round(sign, 3, TW_VALUES_SIGN);
    tw_values_round(lm2, 3, TW_VALUES_LM2);
    tw_values_round(ref2, 3, TW_VALUES_REF2);
    assert_true(lm2[0] == 1 && isnan(lm2[1]) && lm2[2] == 3);
    assert_true(ref2[0] == 1 && isnan(ref2[1]) && ref2[2] == 3);
    assert_true(log8[0] == 1 && log8[1] == INFINITY && log8[2] == 3);
    assert_true(isinf(sign[0]) && isinf(sign[1]) && isinf(sign[2]));
}

/* A value's sign and the exponent of its magnitude at random, evenly over `octaves` that end at 2^top. */
static float random_value(uint64_t *random, int top, double octaves)
{
    double magnitude = exp2(top - octaves * random_unit(random));
    return (float)(random_word(random) & 1 ? magnitude : -magnitude);
}

/* The least distance from x >= 0 to a level: zero, or `lowest` and the 126 above it of the floats with m bits of
 * mantissa. */
static double least_distance(double x, uint32_t lowest, unsigned m)
{
    double least = x;
    for (uint32_t level = 0; level < 127; level++) {
        double distance = fabs(x - (double)tw_bits_float((lowest + level) << (23 - m)));
        if (distance < least) least = distance;
    }
    return least;
}

/* The number of the float with m bits of mantissa that is the nearest to x, by trying them all; the largest one for
 * what lies beyond it. */
static uint32_t nearest_of_all(double x, unsigned m)
{
    uint32_t best = 0;
    for (uint32_t number = 0; number << (23 - m) < 0x7F800000; number++)
        if (fabs(x - (double)tw_bits_float(number << (23 - m))) < fabs(x - (double)tw_bits_float(best << (23 - m))))
            best = number;
    return best;
}

/* By brute force: the finest scale whose 127 levels below the largest value reach to the smallest, and on it for each
 * value a level at the least distance. */
static void check_log8(const float *value, size_t k)
{
    double largest = 0, smallest = INFINITY;
    float rounded[64];
    unsigned m = 6;
    for (size_t i = 0; i < k; i++) {
        largest = fmax(largest, fabs((double)value[i]));
        if (value[i] != 0) smallest = fmin(smallest, fabs((double)value[i]));
    }
    while (m > 3 && nearest_of_all(smallest, m) + 127 <= nearest_of_all(largest, m)) m--;
    uint32_t top = nearest_of_all(largest, m), lowest = top < 127 ? 0 : top - 126;
    memcpy(rounded, value, k * sizeof *value);
    tw_values_round(rounded, k, TW_VALUES_LOG8);
    for (size_t i = 0; i < k; i++) {
        double x = fabs((double)value[i]), got = fabs((double)rounded[i]);
        assert_true(tw_float_bits(rounded[i]) >> 31 == tw_float_bits(value[i]) >> 31);
        assert_true(fabs(got - x) == least_distance(x, lowest, m));
    }
}

TEST(log8_takes_the_nearest_level)
{
    static const double spans[] = {0.1, 1.9, 2.1, 3.9, 4.1, 7.8, 8.2, 15.5, 16.5, 40, 200};
    static const int tops[] = {0, 127, -20, -110, -126, -140};
    uint64_t random = 9;
    float value[64];
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
        for (size_t j = 0; j < sizeof tops / sizeof *tops; j++) {
            for (size_t at = 0; at < 64; at++) value[at] = random_value(&random, tops[j], spans[i]);
            value[5] = 0;
            check_log8(value, 64);
            check_log8(value, 1);
        }
}

TEST(log8_keeps_its_error_bound)
{
    static const struct {
        double octaves, error;
    } cases[] = {{1.9, 0x1p-7}, {3.8, 0x1p-6}, {7.7, 0x1p-5}, {15.4, 0x1p-4}};
    uint64_t random = 4;
    float value[1000], rounded[1000];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t at = 0; at < 1000; at++) rounded[at] = value[at] = random_value(&random, -3, cases[i].octaves);
        tw_values_round(rounded, 1000, TW_VALUES_LOG8);
        for (size_t at = 0; at < 1000; at++) assert_true(fabsf(rounded[at] / value[at] - 1) <= cases[i].error);
    }
}

TEST(extremes_stay_finite)
{
    float huge[] = {FLT_MAX, -FLT_MAX, 1}, tiny[] = {0x1p-149f, -0x1p-149f, 0}, none[] = {0, -0.0f};
    tw_values_round(huge, 3, TW_VALUES_LOG8);
    assert_true(huge[0] == 0x1.Ep127f && huge[1] == -0x1.Ep127f && huge[2] == 0);
    tw_values_round(tiny, 3, TW_VALUES_LOG8);
    assert_true(tiny[0] == 0 && tiny[1] == 0 && tiny[2] == 0);
    tw_values_round(none, 2, TW_VALUES_LOG8);
    assert_true(none[0] == 0 && none[1] == 0);
    float same[] = {FLT_MAX, -FLT_MAX, FLT_MAX};
    tw_values_round(same, 3, TW_VALUES_SIGN);
    assert_true(same[0] == 0x1.FEp127f && same[1] == -0x1.FEp127f && same[2] == 0x1.FEp127f);
}

static float with_few_bits(float x) /* of mantissa, as bf16 has */
{
    int exponent;
    float mantissa = frexpf(x, &exponent);
    return ldexpf(truncf(mantissa * 256), exponent - 8);
}

/* Whatever their number and magnitude, if bf16 has it, equal ones are kept; of others it is the mean, rounded. */
TEST(sign_keeps_the_mean_magnitude)
{
    static float value[3001];
    uint64_t random = 6;
    for (size_t k = 1; k <= 3001; k = 3 * k / 2 + 1) {
        float magnitude = with_few_bits(fabsf(random_value(&random, 100, 200)));
        for (size_t i = 0; i < k; i++) value[i] = random_word(&random) & 1 ? magnitude : -magnitude;
        float first = value[0], last = value[k - 1];
        tw_values_round(value, k, TW_VALUES_SIGN);
        assert_true(value[0] == first && value[k - 1] == last);
    }
    float few[] = {1, -2, 3, -6};
    tw_values_round(few, 4, TW_VALUES_SIGN);
    assert_true(few[0] == 3 && few[1] == -3 && few[2] == 3 && few[3] == -3);
    float between[] = {1, 1, -0x1.03p0f}; /* the mean, 1 + 1/256, lies halfway between 1 and 1 + 1/128 */
    tw_values_round(between, 3, TW_VALUES_SIGN);
    assert_true(between[0] == 1 && between[1] == 1 && between[2] == -1);
}

/* Of sorted magnitudes: the squares that any two levels leave at the least. */
static double least_squares(const float *magnitude, size_t k)
{
    double all = 0, squares = 0, low = 0, best = INFINITY;
    for (size_t i = 0; i < k; i++) {
        all += (double)magnitude[i];
        squares += (double)magnitude[i] * (double)magnitude[i];
    }
    for (size_t cut = 1; cut < k; cut++) {
        low += (double)magnitude[cut - 1];
        best = fmin(best, squares - low * low / (double)cut - (all - low) * (all - low) / (double)(k - cut));
    }
    return best;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* How much more lm2 leaves of `count` values above a threshold than the two best levels do, times that. The values
 * behind `quiet` are eight times as large. */
static double lm2_beside_the_best(size_t count, size_t quiet, uint64_t *random)
{
    float *value = malloc(count * sizeof *value), *magnitude = malloc(count * sizeof *value),
          *rounded = malloc(count * sizeof *value);
    double error = 0;
    for (size_t i = 0; i < count; i++) {
        value[i] = rounded[i] = (float)(2 - log(1 - random_unit(random))) * (random_word(random) & 1 ? 1 : -1);
        if (i >= quiet) value[i] = rounded[i] *= 8;
        magnitude[i] = fabsf(value[i]);
    }
    qsort(magnitude, count, sizeof *magnitude, by_size);
    tw_values_round(rounded, count, TW_VALUES_LM2);
    for (size_t i = 0; i < count; i++) error += pow((double)value[i] - (double)rounded[i], 2);
    double ratio = error / least_squares(magnitude, count);
    free(value);
    free(magnitude);
    free(rounded);
    return ratio;
}

/* But for the rounding of the levels; of a long section a part finds the threshold. */
TEST(lm2_has_the_best_two_levels)
{
    uint64_t random = 8;
    for (int trial = 0; trial < 20; trial++) assert_true(lm2_beside_the_best(200, 200, &random) < 1.02);
    assert_true(lm2_beside_the_best(8192, 8192, &random) < 1.001);
    assert_true(lm2_beside_the_best(8193, 8193, &random) < 1.001);
    assert_true(lm2_beside_the_best(100001, 100001, &random) < 1.001);
    /* whose parts are not alike */
    for (size_t count = 9000; count < 60000; count += 5000)
        assert_true(lm2_beside_the_best(count, count - count / 3, &random) < 1.01);
}

/* A long section in which one value alone has a larger magnitude arrives as it is, wherever that one is. */
TEST(lm2_keeps_what_has_two_magnitudes)
{
    enum { COUNT = 50000 };
    float *value = malloc(COUNT * sizeof *value);
    for (size_t rare = 0; rare < COUNT; rare += 7321) {
        for (size_t i = 0; i < COUNT; i++) value[i] = i % 5 ? 0.75f : -0.75f;
        value[rare] = -3;
        tw_values_round(value, COUNT, TW_VALUES_LM2);
        for (size_t i = 0; i < COUNT; i++) assert_true(value[i] == (i == rare ? -3 : i % 5 ? 0.75f : -0.75f));
    }
    for (size_t i = 0; i < COUNT; i++)
        value[i] = i == 1 ? 0.25f : i == 2 ? 0.5f : 0.75f; /* none above what was looked at */
    tw_values_round(value, COUNT, TW_VALUES_LM2);
    for (size_t i = 0; i < COUNT; i++) assert_true(value[i] == 0.75f);
    free(value);
}

TEST(lm2_by_hand)
{
    float few[] = {1, -2, 3, -10}, same[] = {-0.5f, 0.5f, 0.5f}, one[] = {-7}, none[] = {0, -0.0f};
    tw_values_round(few, 4, TW_VALUES_LM2);
    assert_true(few[0] == 2 && few[1] == -2 && few[2] == 2 && few[3] == -10);
    tw_values_round(same, 3, TW_VALUES_LM2);
    assert_true(same[0] == -0.5f && same[1] == 0.5f && same[2] == 0.5f);
    tw_values_round(one, 1, TW_VALUES_LM2);
    assert_true(one[0] == -7);
    tw_values_round(none, 2, TW_VALUES_LM2);
    assert_true(none[0] == 0 && none[1] == 0);
}

/* SparseLoCo's quantiser: bins over six deviations about the mean, each with the mean of what falls into it. Returns
 * how wide they are. */
static double papers_quantiser(int bins, const float *value, size_t k, unsigned *code, double *decoded)
{
    double mean = 0, squares = 0, sum[256] = {0}, often[256] = {0};
    for (size_t i = 0; i < k; i++) mean += (double)value[i] / (double)k;
    for (size_t i = 0; i < k; i++) squares += pow((double)value[i] - mean, 2);
    double scale = 6 * sqrt(squares / (double)(k - 1)) / bins;
    for (size_t i = 0; i < k; i++) {
        code[i] = (unsigned)fmin(fmax(nearbyint(((double)value[i] - mean) / scale + bins / 2), 0), bins - 1);
        sum[code[i]] += (double)value[i];
        often[code[i]]++;
    }
    for (size_t i = 0; i < k; i++) decoded[i] = sum[code[i]] / often[code[i]];
    return scale;
}

/* The widths are those of a program that computes in fp32. */
TEST(the_papers_quantiser_by_hand)
{
    const float value[] = {3, -2.5f, 2, -1.75f, 1.5f, -4, 2.25f, 1};
    const unsigned of_4[] = {3, 1, 2, 1, 2, 1, 3, 2}, of_256[] = {175, 83, 158, 96, 150, 59, 162, 141};
    const double levels[] = {0, -2.75, 1.5, 2.625};
    unsigned code[8];
    double decoded[8];
    assert_true(fabs(papers_quantiser(4, value, 8, code, decoded) / 3.8595605 - 1) < 1e-7);
    assert_memory_equal(code, of_4, sizeof code);
    float rounded[8];
    memcpy(rounded, value, sizeof rounded);
    tw_values_round(rounded, 8, TW_VALUES_REF2);
    for (size_t i = 0; i < 8; i++) assert_true(decoded[i] == levels[code[i]] && rounded[i] == (float)decoded[i]);
    assert_true(fabs(papers_quantiser(256, value, 8, code, decoded) / 0.0603056290 - 1) < 1e-7);
    assert_memory_equal(code, of_256, sizeof code);
    for (size_t i = 0; i < 8; i++) assert_true(decoded[i] == (double)value[i]);
}

/* Of the largest 64th of normal values: two of its four bins are empty, and its squared error is three times lm2's. */
TEST(lm2_errs_by_a_third_of_the_papers_quantiser)
{
    enum { COUNT = 4096 };
    float value[COUNT], rounded[COUNT];
    unsigned code[COUNT];
    double decoded[COUNT], papers = 0, ours = 0;
    uint64_t random = 9;
    for (size_t i = 0; i < COUNT;) {
        double length = sqrt(-2 * log(1 - random_unit(&random)));
        value[i] = (float)(length * cos(6.283185307179586 * random_unit(&random)));
        i += fabsf(value[i]) > 2.418f;
    }
    memcpy(rounded, value, sizeof rounded);
    tw_values_round(rounded, COUNT, TW_VALUES_LM2);
    papers_quantiser(4, value, COUNT, code, decoded);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(code[i] == (value[i] > 0 ? 3 : 1));
        papers += pow((double)value[i] - decoded[i], 2);
        ours += pow((double)value[i] - (double)rounded[i], 2);
    }
    assert_true(papers > 2.7 * ours && papers < 3.1 * ours);
}

/* Whatever the values: near a mean far from zero, or over many octaves. The bins are a second implementation's. */
TEST(ref2_is_the_papers_quantiser)
{
    enum { MOST = 3000 };
    static float value[MOST], rounded[MOST];
    static unsigned code[MOST];
    static double decoded[MOST];
    uint64_t random = 3;
    for (int trial = 0; trial < 300; trial++) {
        size_t k = 2 + random_word(&random) % (MOST - 1);
        double octaves = 1 + trial % 40, far = trial % 3 ? 0 : 5;
        for (size_t i = 0; i < k; i++) value[i] = rounded[i] = random_value(&random, trial % 7, octaves) + (float)far;
        papers_quantiser(4, value, k, code, decoded);
        tw_values_round(rounded, k, TW_VALUES_REF2);
        double sum = 0, magnitudes = 0;
        for (size_t i = 0; i < k; i++) {
            assert_true(fabs((double)rounded[i] - decoded[i]) <= 1e-7 * fabs(decoded[i]));
            sum += (double)value[i] - (double)rounded[i];
            magnitudes += fabs((double)value[i]);
        }
        assert_true(fabs(sum) <= 1e-7 * magnitudes);
    }
}

/* Two values are both within a bin of their mean, and equal ones have no deviation. Halfway between two bins the even
 * one is taken. */
TEST(ref2_by_hand)
{
    float one[] = {-7}, two[] = {1, 2}, same[] = {0.1F, 0.1F, 0.1F}, none[] = {0, -0.0F};
    float halves[] = {3, 3, 3, 3, -3, -3, -3, -3, 6, -6}; /* with a deviation of 4, and so bins of 6 */
    float huge[] = {FLT_MAX, -FLT_MAX, FLT_MAX, -FLT_MAX}, tiny[] = {0, -0x1p-149F};
    tw_values_round(one, 1, TW_VALUES_REF2);
    assert_true(one[0] == -7);
    tw_values_round(two, 2, TW_VALUES_REF2);
    assert_true(two[0] == 1.5F && two[1] == 1.5F);
    tw_values_round(same, 3, TW_VALUES_REF2);
    assert_true(same[0] == 0.1F && same[1] == 0.1F && same[2] == 0.1F);
    tw_values_round(none, 2, TW_VALUES_REF2);
    assert_true(tw_float_bits(none[0]) == 0 && tw_float_bits(none[1]) == 0);
    tw_values_round(halves, 10, TW_VALUES_REF2);
    assert_true(halves[0] == 0 && halves[7] == 0 && halves[8] == 6 && halves[9] == -6);
    tw_values_round(huge, 4, TW_VALUES_REF2);
    assert_true(huge[0] == FLT_MAX && huge[1] == -FLT_MAX);
    tw_values_round(tiny, 2, TW_VALUES_REF2);
    assert_true(tw_float_bits(tiny[0]) == 0 && tw_float_bits(tiny[1]) == 0);
}

/* Whose bins would be others if they were sought again: then three of the four values become one. */
TEST(ref2_puts_what_was_rounded_as_it_is)
{
    support from = support_uniform(1000, 0.2, 1);
    float *got = calloc(from.k, sizeof *got);
    uint32_t *index = calloc(from.k, sizeof *index);
    size_t size, k;
    tw_packet_reader reader;
    for (size_t i = 0; i < from.k; i++) from.value[i] = (float)((int)(i % 4) * (i % 4 == 3 ? 100 : 1) - 1);
    tw_coding coding = {TW_VALUES_REF2, TW_INDICES_AUTO};
    unsigned char *packet = encode_one(&from, coding, &size);
    assert_int_equal(tw_packet_open(&reader, packet, size, 1), TW_OK);
    assert_int_equal(tw_packet_get_sparse(&reader, 1000, from.k, index, got, &k), TW_OK);
    assert_memory_equal(got, from.value, from.k * sizeof *got);
    tw_values_round(got, from.k, TW_VALUES_REF2);
    assert_true(got[0] == got[1] && got[1] == got[2] && got[2] != got[3]);
    free(packet);
    free(index);
    free(got);
    support_destroy(&from);
}

/* Then nothing is above the threshold, and the larger level is the smaller one. */
TEST(lm2_of_equal_magnitudes_arrives)
{
    support from = support_uniform(1000, 0.2, 1);
    float *got = calloc(from.k, sizeof *got);
    uint32_t *index = calloc(from.k, sizeof *index);
    size_t size, k;
    tw_packet_reader reader;
    for (size_t i = 0; i < from.k; i++) from.value[i] = i % 3 ? 0.75f : -0.75f;
    unsigned char *packet = encode_one(&from, (tw_coding){TW_VALUES_LM2, TW_INDICES_AUTO}, &size);
    assert_int_equal(tw_packet_open(&reader, packet, size, 1), TW_OK);
    assert_int_equal(tw_packet_get_sparse(&reader, 1000, from.k, index, got, &k), TW_OK);
    assert_memory_equal(got, from.value, from.k * sizeof *got);
    free(packet);
    free(index);
    free(got);
    support_destroy(&from);
}

/* Putting x, putting rounded x, and reading either give rounded x, whose rounding is itself, but for ref2's. */
TEST(rounding_is_what_arrives)
{
    enum { COUNT = 5000 };
    uint64_t random = 2;
    for (tw_value_code code = 0; code < TW_VALUE_CODES; code++) {
        support from = support_create(COUNT, COUNT), got = support_create(COUNT, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            support_add(&from, i);
            from.value[i] = ldexpf((float)random_unit(&random) * 2 - 1, (int)(random_word(&random) % 250) - 125);
        }
        size_t size, k;
        unsigned char *packet = encode_one(&from, (tw_coding){code, TW_INDICES_AUTO}, &size);
        tw_packet_reader reader;
        assert_int_equal(tw_packet_open(&reader, packet, size, 1), TW_OK);
        assert_int_equal(tw_packet_get_sparse(&reader, COUNT, COUNT, got.index, got.value, &k), TW_OK);
        tw_values_round(from.value, COUNT, code);
        assert_memory_equal(got.value, from.value, COUNT * sizeof(float));
        if (code != TW_VALUES_REF2) tw_values_round(from.value, COUNT, code);
        assert_memory_equal(got.value, from.value, COUNT * sizeof(float));
        free(packet);
        support_destroy(&from);
        support_destroy(&got);
    }
}

TEST(values_take_their_bytes)
{
    for (size_t k = 0; k < 40; k++) {
        assert_int_equal(tw_values_bytes(k, TW_VALUES_FP32), 4 * k);
        assert_int_equal(tw_values_bytes(k, TW_VALUES_FP16), 2 * k);
        assert_int_equal(tw_values_bytes(k, TW_VALUES_BF16), 2 * k);
        assert_int_equal(tw_values_bytes(k, TW_VALUES_LOG8), k ? 2 + k : 0);
        assert_int_equal(tw_values_bytes(k, TW_VALUES_SIGN), k ? 2 + (k + 7) / 8 : 0);
        assert_int_equal(tw_values_bytes(k, TW_VALUES_LM2), k ? 4 + (2 * k + 7) / 8 : 0);
        assert_int_equal(tw_values_bytes(k, TW_VALUES_REF2), k ? 16 + (2 * k + 7) / 8 : 0);
    }
    support from = support_uniform(1000, 0.2, 1);
    size_t fp32, size;
    free(encode_one(&from, FP32, &fp32));
    for (tw_value_code code = 0; code < TW_VALUE_CODES; code++) {
        free(encode_one(&from, (tw_coding){code, TW_INDICES_AUTO}, &size));
        assert_int_equal(fp32 - size, 4 * from.k - tw_values_bytes(from.k, code));
    }
    support_destroy(&from);
}

RUN_TESTS(NULL, NULL)
