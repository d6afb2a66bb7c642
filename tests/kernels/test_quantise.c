/* The rows of quantise.h: every level against the reference, bit for bit, and the reference against what quantise.h
 * says, done one element and one bit at a time. */
#include "support.h"

enum { MOST = 3300, SHIFTS = 5, MARGIN = 40 };

/* Where a row finds its arrays; it writes to some and leaves the others alone. */
typedef struct arrays {
    float v[MOST + MARGIN], g[MOST + MARGIN];
    uint32_t code[MOST + MARGIN];
    unsigned char bytes[MOST + MARGIN];
    tw_sign_sums sums;
} arrays;

typedef struct question {
    size_t n, shift;
    float a, sent[2];
    uint32_t most;
    unsigned bits;
} question;

static const tw_noise noise = {{0x12345678u, 0x9ABCDEF0u}, 0xFFFFFF00u}; /* the numbers wrap around on the way */

/* ---- the rows, all called alike ---------------------------------------------------------------------------------- */

static double accumulate(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->accumulate(x->v + q->shift, x->g + q->shift, q->n, q->a);
    return 0;
}

static double peak(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    return rows->peak(x->g + q->shift, q->n);
}

static double send_signs(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->send_signs(x->v + q->shift, x->g + q->shift, q->n, q->a, q->sent, x->bytes + q->shift, &x->sums);
    return 0;
}

static double add_signs(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->add_signs(x->v + q->shift, x->bytes + q->shift, q->n, q->sent);
    return 0;
}

/* The largest |x * a| becomes the highest level. */
static double dither(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    float largest = rows->peak(x->g + q->shift, q->n), scale = (float)q->most * 0.999999f;
    rows->dither(x->code + q->shift, x->g + q->shift, q->n, scale, largest > 0 ? 1 / largest : 0, q->most, noise);
    return 0;
}

static double ternarise(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->ternarise(x->code + q->shift, x->g + q->shift, q->n, q->a, q->sent[0], noise);
    return 0;
}

static double add_levels(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->add_levels(x->v + q->shift, x->code + q->shift, q->n, q->most, q->a);
    return 0;
}

static double send_powers(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    float largest = rows->peak(x->g + q->shift, q->n);
    rows->send_powers(x->bytes + q->shift, x->g + q->shift, q->n, q->a, largest > 0 ? 0.9f / (largest * q->a) : 0,
                      noise);
    return 0;
}

static double add_powers(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->add_powers(x->v + q->shift, x->bytes + q->shift, q->n, q->a);
    return 0;
}

/* From nothing to beyond the largest. */
static double send_e4m3(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    float largest = rows->peak(x->g + q->shift, q->n);
    rows->send_e4m3(x->bytes + q->shift, x->g + q->shift, q->n, q->a, largest > 0 ? 500 / (largest * q->a) : 0);
    return 0;
}

static double add_e4m3(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->add_e4m3(x->v + q->shift, x->bytes + q->shift, q->n, q->a);
    return 0;
}

static double pack(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->pack(x->bytes + q->shift, x->code + q->shift, q->n, q->bits);
    return 0;
}

static double unpack(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->unpack(x->code + q->shift, x->bytes + q->shift, q->n, q->bits);
    return 0;
}

static double pack_trits(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->pack_trits(x->bytes + q->shift, x->code + q->shift, q->n);
    return 0;
}

static double unpack_trits(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->unpack_trits(x->code + q->shift, x->bytes + q->shift, q->n);
    return 0;
}

typedef struct row {
    const char *name;
    double (*run)(const tw_quantise_rows *rows, const question *q, arrays *x);
    uint32_t below;      /* what the codes and the bytes it reads may be; 0: below 2^bits */
    size_t units, parts; /* units * n / parts bytes are written; 0: bits * n / 8 */
} row;

static const row rows[] = {
    {"accumulate", accumulate, 256, 0, 1},
    {"peak", peak, 256, 0, 1},
    {"send_signs", send_signs, 256, 1, 8},
    {"add_signs", add_signs, 256, 0, 1},
    {"dither", dither, 256, 0, 1},
    {"ternarise", ternarise, 256, 0, 1},
    {"add_levels", add_levels, 256, 0, 1},
    {"send_powers", send_powers, 256, 1, 1},
    {"add_powers", add_powers, 256, 0, 1},
    {"send_e4m3", send_e4m3, 256, 1, 1},
    {"add_e4m3", add_e4m3, 256, 0, 1},
    {"pack", pack, 0, 0, 0},
    {"unpack", unpack, 256, 0, 1},
    {"pack_trits", pack_trits, 3, 1, 5},
    {"unpack_trits", unpack_trits, 243, 0, 1},
};
enum { ROWS = sizeof rows / sizeof *rows };

static const question questions[] = {
    {.a = 1 / 3.0f, .sent = {0.25f, -0.75f}, .most = 1, .bits = 1},
    {.a = 7.9f, .sent = {0, 0}, .most = 7, .bits = 4},
    {.a = 127, .sent = {1e-40f, -3}, .most = 127, .bits = 8},
    {.a = 0x1p-127f, .sent = {0.5f, -0.0f}, .most = 3, .bits = 3},
    {.a = 0.5f, .sent = {0.1f, -0.1f}, .most = 15, .bits = 5},
    {.a = 0x1p-126f, .sent = {0.1f, -0.1f}, .most = 63, .bits = 7},
};
enum { QUESTIONS = sizeof questions / sizeof *questions };

/* ---- every level against the reference --------------------------------------------------------------------------- */

static float value(content kind, size_t i)
{
    float x = tw_bits_float(pattern(kind, i));
    return isfinite(x) && fabsf(x) <= 1e30f ? x : 0.125f; /* sums stay finite */
}

static void fill(arrays *x, const row *r, const question *q, content kind)
{
    uint32_t below = r->below ? r->below : 1u << q->bits;
    memset(x, 0, sizeof *x);
    for (size_t i = 0; i < q->n + MARGIN; i++) {
        x->v[i] = value(kind, i);
        x->g[i] = value(kind, i + 5000);
        x->code[i] = pattern(ANY_BITS, i + 10000) % below;
        x->bytes[i] = (unsigned char)(pattern(ANY_BITS, i + 15000) % (below < 243 ? 256 : below));
    }
    for (size_t k = 0; k < 16; k++) x->sums.positive[k] = (double)k + 0.5;
}

static void check_row(const row *r, const question *q, content kind)
{
    static arrays before, expected, actual;
    char what[96];
    fill(&before, r, q, kind);
    expected = before;
    double number = r->run(tw_kernels_at(TW_ISA_SCALAR)->quantise, q, &expected);
    size_t written = r->parts ? (r->units * q->n + r->parts - 1) / r->parts : (q->bits * q->n + 7) / 8;
    for (size_t i = 0; i < MOST + MARGIN; i++) {
        int inside = i >= q->shift && i < q->shift + q->n, in_bytes = i >= q->shift && i < q->shift + written;
        if (!inside && (before.code[i] != expected.code[i] || memcmp(&before.v[i], &expected.v[i], 4) != 0))
            fail_msg("%s writes to element %zu", r->name, i);
        if (!in_bytes && before.bytes[i] != expected.bytes[i]) fail_msg("%s writes to byte %zu", r->name, i);
    }
    for (int level = TW_ISA_SCALAR + 1; level < TW_ISA_LEVELS; level++) {
        if (!tw_kernels_at((tw_isa_level)level)) continue;
        snprintf(what, sizeof what, "%s.%s, n = %zu, shift = %zu, bits = %u", tw_isa_name((tw_isa_level)level), r->name,
                 q->n, q->shift, q->bits);
        actual = before;
        assert_same_number(number, r->run(tw_kernels_at((tw_isa_level)level)->quantise, q, &actual), what);
        if (memcmp(&expected, &actual, sizeof actual) != 0) fail_msg("%s differs from the reference", what);
    }
}

static void check_size(size_t n, size_t shift, size_t number)
{
    question q = questions[number % QUESTIONS];
    q.n = n;
    q.shift = shift;
    for (size_t r = 0; r < ROWS; r++)
        for (int kind = 0; kind < CONTENTS; kind++) check_row(&rows[r], &q, (content)kind);
}

static void levels_agree_on_every_size_and_alignment(void **state)
{
    for (size_t n = 0; n <= 300; n += stride()) check_size(n, n % SHIFTS, n);
    for (size_t n = 1000; n <= 1060; n += 3) check_size(n, n % SHIFTS, n);
}

static void levels_agree_on_every_question(void **state)
{
    static const size_t sizes[] = {640, 1024, 1280, 2047, 2048, 3300};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t number = s; number < s + QUESTIONS; number += stride())
            check_size(sizes[s], number % SHIFTS, number);
}

/* ---- the reference against the words of quantise.h --------------------------------------------------------------- */

/* Bit `bit` of element i's code, in the layout that the header describes. */
static int bit_at(const unsigned char *src, size_t n, size_t i, unsigned bit, unsigned bits)
{
    size_t group = i / 1024, at = i % 1024;
    const unsigned char *start = src + group * 128 * bits;
    if (n - group * 1024 < 1024) return start[(at * bits + bit) / 8] >> (at * bits + bit) % 8 & 1;
    size_t lane = at % 32, place = at / 32 * bits + bit;
    return start[4 * (32 * (place / 32) + lane) + place % 32 / 8] >> place % 8 & 1;
}

static void codes_lie_where_the_header_says(void **state)
{
    static uint32_t code[MOST], back[MOST];
    static unsigned char bytes[MOST];
    const tw_quantise_rows *reference = tw_kernels_at(TW_ISA_SCALAR)->quantise;
    static const size_t sizes[] = {1, 7, 1023, 1024, 1025, 2048, 3300};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (unsigned bits = 1; bits <= 8; bits++) {
            size_t n = sizes[s];
            for (size_t i = 0; i < n; i++) code[i] = pattern(ANY_BITS, i) % (1u << bits);
            memset(bytes, 0xFF, sizeof bytes);
            reference->pack(bytes, code, n, bits);
            for (size_t i = 0; i < n; i++)
                for (unsigned bit = 0; bit < bits; bit++)
                    assert_int_equal(bit_at(bytes, n, i, bit, bits), code[i] >> bit & 1);
            size_t loose = n % 1024 * bits % 8; /* bits of the last byte that are used */
            if (loose) assert_int_equal(bytes[(n * bits - 1) / 8] >> loose, 0);
            reference->unpack(back, bytes, n, bits);
            assert_memory_equal(back, code, n * sizeof *code);
        }
}

static void trits_lie_where_the_header_says(void **state)
{
    static uint32_t code[MOST], back[MOST];
    static unsigned char bytes[MOST];
    static const uint32_t weight[] = {1, 3, 9, 27, 81};
    const tw_quantise_rows *reference = tw_kernels_at(TW_ISA_SCALAR)->quantise;
    static const size_t sizes[] = {1, 4, 5, 639, 640, 641, 1280, 3300};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        uint32_t sums[MOST] = {0};
        for (size_t i = 0; i < n; i++) {
            size_t at = i % 640, group = i - at, plain = n - group < 640;
            size_t byte = plain ? i / 5 : group / 5 + 4 * (at % 32) + at / 32 / 5;
            code[i] = pattern(ANY_BITS, i) % 3;
            sums[byte] += code[i] * weight[plain ? at % 5 : at / 32 % 5];
        }
        reference->pack_trits(bytes, code, n);
        for (size_t byte = 0; byte < (n + 4) / 5; byte++) assert_int_equal(bytes[byte], sums[byte]);
        reference->unpack_trits(back, bytes, n);
        assert_memory_equal(back, code, n * sizeof *code);
    }
}

static void signs_are_packed_and_summed(void **state)
{
    static float v[MOST], g[MOST], sum[MOST];
    static uint32_t code[MOST];
    static unsigned char bits[MOST / 8 + 1], packed[MOST / 8 + 1];
    const tw_quantise_rows *reference = tw_kernels_at(TW_ISA_SCALAR)->quantise;
    const float sent[2] = {0.25f, -0.5f}, values[2] = {3, -2};
    tw_sign_sums sums = {0};
    double positive = 0, negative = 0;
    size_t negatives = 0;
    for (size_t i = 0; i < MOST; i++) {
        v[i] = (float)((int)(i % 17) - 8);
        g[i] = (float)((int)(i % 5) - 2);
        float expected = v[i] - (v[i] < 0 ? -0.5f : 0.25f) + 0.5f * g[i];
        code[i] = expected < 0;
        negatives += code[i];
        *(expected < 0 ? &negative : &positive) += expected;
        sum[i] = expected;
    }
    reference->send_signs(v, g, MOST, 0.5f, sent, bits, &sums);
    assert_memory_equal(v, sum, sizeof v);
    reference->pack(packed, code, MOST, 1);
    assert_memory_equal(bits, packed, (MOST + 7) / 8);
    for (size_t k = 1; k < 16; k++) {
        sums.positive[0] += sums.positive[k]; /* exact: multiples of 1/4 */
        sums.negative[0] += sums.negative[k];
    }
    assert_true(sums.positive[0] == positive && sums.negative[0] == negative && sums.negatives == negatives);
    reference->add_signs(sum, bits, MOST, values);
    for (size_t i = 0; i < MOST; i++) assert_true(sum[i] == v[i] + values[v[i] < 0]);
}

/* ---- the random rows --------------------------------------------------------------------------------------------- */

enum { DRAWS = 1 << 16 };
static float samples[DRAWS];
static uint32_t drawn[DRAWS];

/* The mean of what x becomes over many elements, within five standard errors of x. */
static void check_mean(const char *what, double x, double mean, double variance)
{
    double error = fabs(mean - x), allowed = 5 * sqrt(variance / DRAWS) + 1e-7 * fabs(x) + 0x1p-24;
    if (error > allowed) fail_msg("%s: %g becomes %g on average, %g away", what, x, mean, error);
}

static void dithering_is_unbiased(void **state)
{
    static const float inputs[] = {0, 1, -1, 0.5f, -0.25f, 0.001f, -6.999f, 3.3f, 7, -7, 0x1p-20f};
    for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++) {
        double x = inputs[k], part = x - floor(x), sum = 0;
        for (size_t i = 0; i < DRAWS; i++) samples[i] = inputs[k];
        tw_noise own = {{(uint32_t)k * 77 + 1, 5}, 0};
        tw_kernels_best()->quantise->dither(drawn, samples, DRAWS, 2, 0.5f, 7, own);
        for (size_t i = 0; i < DRAWS; i++) {
            double level = (double)drawn[i] - 7;
            if (level != floor(x) && level != floor(x) + (part > 0)) fail_msg("%g becomes %g", x, level);
            sum += level;
        }
        check_mean("dither", x, sum / DRAWS, part * (1 - part));
    }
    for (size_t i = 0; i < DRAWS; i++) samples[i] = i % 2 ? 1e30f : -INFINITY; /* beyond the range: its ends */
    tw_kernels_best()->quantise->ternarise(drawn, samples, DRAWS, 1, 1, noise);
    for (size_t i = 0; i < DRAWS; i++) assert_int_equal(drawn[i], i % 2 ? 2 : 0);
}

static double power_of(uint32_t code)
{
    uint32_t power = code & 127;
    double magnitude = power ? ldexp(1, (int)power - 127) : 0;
    return code >> 7 ? -magnitude : magnitude;
}

static void powers_are_unbiased(void **state)
{
    static unsigned char codes[DRAWS];
    static const float inputs[] = {1,         -1,          0.5f,      0.75f,      -0.3f,           1e-5f,
                                   0x1p-126f, 0x1.8p-126f, 0x1p-127f, -0x1p-128f, 0x1.fffffep-80f, 0};
    for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++) {
        double x = fabs(inputs[k]), low, sum = 0;
        int exponent;
        frexp(x, &exponent);
        low = x < 0x1p-126 ? 0 : ldexp(0.5, exponent);
        double high = low == 0 ? 0x1p-126 : 2 * low, unit = high - low, part = (x - low) / unit;
        for (size_t i = 0; i < DRAWS; i++) samples[i] = inputs[k];
        tw_noise own = {{(uint32_t)k * 77 + 1, 5}, 0};
        tw_kernels_best()->quantise->send_powers(codes, samples, DRAWS, 2, 0.5f, own);
        tw_kernels_best()->quantise->unpack(drawn, codes, DRAWS, 8);
        for (size_t i = 0; i < DRAWS; i++) {
            double power = power_of(drawn[i]) * (inputs[k] < 0 ? -1 : 1);
            if (power != low && !(power == high && part > 0)) fail_msg("%g becomes %g", inputs[k], power);
            sum += (power - low) / unit;
        }
        check_mean("powers", part, sum / DRAWS, part * (1 - part));
    }
}

/* ---- E4M3: all 254 numbers, and what lies between them ---------------------------------------------------------- */

/* By the format's definition; the two NaNs are left out. */
static double e4m3_of(unsigned code)
{
    int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
    double magnitude = exponent ? ldexp(1 + mantissa / 8.0, exponent - 7) : ldexp(mantissa / 8.0, -6);
    return code & 128 ? -magnitude : magnitude;
}

static unsigned sent_as(float x)
{
    unsigned char code;
    tw_kernels_best()->quantise->send_e4m3(&code, &x, 1, 1, 1);
    return code;
}

/* Halfway goes to the even code, the least bit off to the nearer one. */
static void check_between(unsigned low, float sign)
{
    float middle = sign * (float)(0.5 * (e4m3_of(low) + e4m3_of(low + 1)));
    unsigned negative = sign < 0 ? 128 : 0;
    assert_int_equal(sent_as(middle), negative | (low % 2 ? low + 1 : low));
    assert_int_equal(sent_as(nextafterf(middle, 0)), negative | low);
    assert_int_equal(sent_as(nextafterf(middle, sign * INFINITY)), negative | (low + 1));
}

static void e4m3_rounds_to_the_nearest(void **state)
{
    for (unsigned code = 0; code < 256; code++) {
        unsigned char byte = (unsigned char)code;
        float sum = 3;
        if ((code & 127) == 127) continue;
        assert_int_equal(sent_as((float)e4m3_of(code)), code);
        tw_kernels_best()->quantise->add_e4m3(&sum, &byte, 1, 0.5f);
        assert_true(sum == (float)(3 + 0.5 * e4m3_of(code)));
        if (code < 126) check_between(code, 1);
        if (code < 126) check_between(code, -1);
    }
    assert_int_equal(sent_as(449), 126);
    assert_int_equal(sent_as(-3e38f), 254);
    assert_int_equal(sent_as(-0.0f), 128);
    assert_int_equal(sent_as(-1e-40f), 128);
}

/* Half-way values become 0 or 1: fair coins, of which the products with others must be as many as chance has it. */
static void toss(uint64_t stream, uint64_t step, float *coin)
{
    uint32_t words[4];
    tw_random(1, stream, step, words);
    for (size_t i = 0; i < DRAWS; i++) samples[i] = 0.5f;
    tw_noise own = {{words[0], words[1]}, 0};
    tw_kernels_best()->quantise->dither(drawn, samples, DRAWS, 1, 1, 1, own);
    for (size_t i = 0; i < DRAWS; i++) coin[i] = drawn[i] == 2 ? 1 : -1;
}

static void check_independent(const float *a, const float *b, size_t lag)
{
    double sum = 0;
    for (size_t i = 0; i + lag < DRAWS; i++) sum += (double)a[i] * b[i + lag];
    if (fabs(sum) > 5 * sqrt(DRAWS)) fail_msg("lag %zu: the products add up to %g of %d", lag, sum, DRAWS);
}

static void neighbours_steps_and_ranks_share_nothing(void **state)
{
    static float coin[4][DRAWS];
    for (size_t k = 0; k < 4; k++) toss(k / 2, k % 2, coin[k]);
    for (size_t k = 0; k < 4; k++)
        for (size_t lag = 1; lag <= 1024; lag += lag < 70 ? 1 : 53) check_independent(coin[k], coin[k], lag);
    for (size_t k = 1; k < 4; k++)
        for (size_t lag = 0; lag < 4; lag++) check_independent(coin[0], coin[k], lag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_agree_on_every_size_and_alignment),
        cmocka_unit_test(levels_agree_on_every_question),
        cmocka_unit_test(codes_lie_where_the_header_says),
        cmocka_unit_test(trits_lie_where_the_header_says),
        cmocka_unit_test(signs_are_packed_and_summed),
        cmocka_unit_test(dithering_is_unbiased),
        cmocka_unit_test(powers_are_unbiased),
        cmocka_unit_test(e4m3_rounds_to_the_nearest),
        cmocka_unit_test(neighbours_steps_and_ranks_share_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
