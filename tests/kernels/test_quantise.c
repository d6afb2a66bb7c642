/* The rows of quantise.h: every level against the reference, bit for bit, and the reference against what quantise.h
 * says, done one element and one bit at a time. */
#include "support.h"

enum { MOST = 3300, SHIFTS = 5, MARGIN = 40 };

/* Where a row finds its arrays; it writes to some and leaves the others alone. */
typedef struct arrays {
    _Alignas(64) float v[MOST + MARGIN];
    float g[MOST + MARGIN];
    unsigned char bytes[MOST + MARGIN];
    tw_sign_sums sums;
} arrays;

typedef struct question {
    size_t n, shift;
    float a, sent[2];
    unsigned bits;
    size_t bucket;
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

static double take_signs(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->take_signs(x->v + q->shift, q->n, q->sent);
    return 0;
}

static double fill_still(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    return (double)rows->fill_still(x->v + q->shift, x->g + q->shift, q->n, q->a);
}

static double send_signs(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->send_signs(x->v + q->shift, x->g + q->shift, q->n, q->a, q->sent, x->bytes + q->shift, &x->sums);
    return 0;
}

/* Past the cache to where whole vectors fit, and elsewhere onto itself. */
static tw_addition addition(const question *q, arrays *x)
{
    int past = q->shift == 0;
    return (tw_addition){x->v + q->shift, past ? x->g : x->v + q->shift, q->n, past};
}

static double add_signs(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    tw_addition to = addition(q, x);
    rows->add_signs(&to, x->bytes + q->shift, q->sent);
    return 0;
}

enum { MOST_BUCKETS = (MOST + TW_LEAST_BUCKET - 1) / TW_LEAST_BUCKET };

/* The largest |x * a| of a bucket becomes the highest level. */
static double send_levels(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    float factor[MOST_BUCKETS] = {0}, scale = (float)((1u << (q->bits - 1)) - 1) * 0.999999f;
    for (size_t b = 0; b * q->bucket < q->n; b++) {
        size_t first = b * q->bucket, here = q->n - first < q->bucket ? q->n - first : q->bucket;
        float largest = rows->peak(x->g + q->shift + first, here);
        factor[b] = largest > 0 ? 1 / largest : 0;
    }
    rows->send_levels(x->bytes + q->shift, x->g + q->shift, q->n, scale, &(tw_levels){q->bits, q->bucket, factor},
                      noise);
    return 0;
}

static double send_trits(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    rows->send_trits(x->bytes + q->shift, x->g + q->shift, q->n, q->a, q->sent[0], noise);
    return 0;
}

static double add_levels(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    float factor[MOST_BUCKETS];
    tw_addition to = addition(q, x);
    for (size_t b = 0; b < MOST_BUCKETS; b++) factor[b] = q->a * (float)(b + 1);
    rows->add_levels(&to, x->bytes + q->shift, &(tw_levels){q->bits, q->bucket, factor});
    return 0;
}

static double add_trits(const tw_quantise_rows *rows, const question *q, arrays *x)
{
    tw_addition to = addition(q, x);
    rows->add_trits(&to, x->bytes + q->shift, q->a);
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
    tw_addition to = addition(q, x);
    rows->add_powers(&to, x->bytes + q->shift, q->a);
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
    tw_addition to = addition(q, x);
    rows->add_e4m3(&to, x->bytes + q->shift, q->a);
    return 0;
}

typedef struct row {
    const char *name;
    double (*run)(const tw_quantise_rows *rows, const question *q, arrays *x);
    unsigned below;      /* what the bytes it reads may be */
    size_t units, parts; /* units * n / parts bytes are written; parts 0: bits * n / 8 */
} row;

static const row rows[] = {
    {"accumulate", accumulate, 256, 0, 1},   {"peak", peak, 256, 0, 1},
    {"take_signs", take_signs, 256, 0, 1},   {"fill_still", fill_still, 256, 0, 1},
    {"send_signs", send_signs, 256, 1, 8},   {"add_signs", add_signs, 256, 0, 1},
    {"send_levels", send_levels, 256, 0, 0}, {"add_levels", add_levels, 256, 0, 1},
    {"send_trits", send_trits, 256, 1, 5},   {"add_trits", add_trits, 243, 0, 1},
    {"send_powers", send_powers, 256, 1, 1}, {"add_powers", add_powers, 256, 0, 1},
    {"send_e4m3", send_e4m3, 256, 1, 1},     {"add_e4m3", add_e4m3, 256, 0, 1},
};
enum { ROWS = sizeof rows / sizeof *rows };

static const question questions[] = {
    {.a = 1 / 3.0f, .sent = {0.25f, -0.75f}, .bits = 2, .bucket = 128},
    {.a = 7.9f, .sent = {0, 0}, .bits = 4, .bucket = 512},
    {.a = 127, .sent = {1e-40f, -3}, .bits = 8, .bucket = 1024},
    {.a = 0x1p-127f, .sent = {0.5f, -0.0f}, .bits = 3, .bucket = 256},
    {.a = 0.5f, .sent = {0.1f, -0.1f}, .bits = 5, .bucket = 512},
    {.a = 0x1p-126f, .sent = {0.1f, -0.1f}, .bits = 7, .bucket = 128},
    {.a = 1.5f, .sent = {2, -0.1f}, .bits = 6, .bucket = 256},
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
    memset(x, 0, sizeof *x);
    for (size_t i = 0; i < q->n + MARGIN; i++) {
        x->v[i] = value(kind, i);
        x->g[i] = value(kind, i + 5000);
        x->bytes[i] = (unsigned char)(pattern(ANY_BITS, i + 15000) % r->below);
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
        if (!inside && memcmp(&before.v[i], &expected.v[i], 4) != 0) fail_msg("%s writes to element %zu", r->name, i);
        if (!in_bytes && before.bytes[i] != expected.bytes[i]) fail_msg("%s writes to byte %zu", r->name, i);
    }
    for (int level = TW_ISA_SCALAR + 1; level < TW_ISA_LEVELS; level++) {
        if (!tw_kernels_at((tw_isa_level)level)) continue;
        snprintf(what, sizeof what, "%s.%s, n = %zu, shift = %zu, bits = %u", tw_isa_name((tw_isa_level)level), r->name,
                 q->n, q->shift, q->bits);
        actual = before;
        assert_same_number(number, r->run(tw_kernels_at((tw_isa_level)level)->quantise, q, &actual), what);
        tw_kernels_at((tw_isa_level)level)->drain();
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

TEST(levels_agree_on_every_size_and_alignment)
{
    for (size_t n = 0; n <= 300; n += stride()) check_size(n, n % SHIFTS, n);
    for (size_t n = 1000; n <= 1060; n += 3) check_size(n, n % SHIFTS, n);
}

TEST(levels_agree_on_every_question)
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

static uint32_t code_at(const unsigned char *src, size_t n, size_t i, unsigned bits)
{
    uint32_t code = 0;
    for (unsigned bit = 0; bit < bits; bit++) code |= (uint32_t)bit_at(src, n, i, bit, bits) << bit;
    return code;
}

/* Levels that need no rounding. */
static void check_codes(const tw_quantise_rows *reference, size_t n, unsigned bits)
{
    static float x[MOST], sum[MOST];
    static unsigned char bytes[MOST];
    float factor[MOST_BUCKETS];
    tw_levels levels = {bits, 256, factor};
    int most = (1 << (bits - 1)) - 1;
    for (size_t b = 0; b < MOST_BUCKETS; b++) factor[b] = b % 2 ? 0.5f : 0.25f;
    for (size_t i = 0; i < n; i++) x[i] = (float)((int)(pattern(ANY_BITS, i) % (2u * (unsigned)most + 1)) - most);
    for (size_t i = 0; i < n; i++) sum[i] = x[i] / factor[i / 256];
    memset(bytes, 0xFF, sizeof bytes);
    reference->send_levels(bytes, sum, n, 1, &levels, noise);
    for (size_t i = 0; i < n; i++) assert_int_equal(code_at(bytes, n, i, bits), (int)x[i] + most);
    size_t loose = n % 1024 * bits % 8; /* bits of the last byte that are used */
    if (loose) assert_int_equal(bytes[(n * bits - 1) / 8] >> loose, 0);
    for (size_t i = 0; i < n; i++) sum[i] = 3;
    reference->add_levels(&(tw_addition){sum, sum, n, 0}, bytes, &levels);
    for (size_t i = 0; i < n; i++) assert_true(sum[i] == 3 + x[i] * factor[i / 256]);
}

TEST(codes_lie_where_the_header_says)
{
    static const size_t sizes[] = {1, 7, 1023, 1024, 1025, 2048, 3300};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (unsigned bits = 2; bits <= 8; bits++) check_codes(tw_kernels_at(TW_ISA_SCALAR)->quantise, sizes[s], bits);
}

TEST(trits_lie_where_the_header_says)
{
    static float x[MOST], sum[MOST];
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
            uint32_t trit = pattern(ANY_BITS, i) % 3;
            x[i] = (float)trit - 1;
            sum[i] = 5;
            sums[byte] += trit * weight[plain ? at % 5 : at / 32 % 5];
        }
        reference->send_trits(bytes, x, n, 1, 1, noise);
        for (size_t byte = 0; byte < (n + 4) / 5; byte++) assert_int_equal(bytes[byte], sums[byte]);
        reference->add_trits(&(tw_addition){sum, sum, n, 0}, bytes, 0.5f);
        for (size_t i = 0; i < n; i++) assert_true(sum[i] == 5 + 0.5f * x[i]);
    }
}

TEST(signs_are_packed_and_summed)
{
    static float v[MOST], g[MOST], sum[MOST];
    static unsigned char bits[MOST / 8 + 1];
    const tw_quantise_rows *reference = tw_kernels_at(TW_ISA_SCALAR)->quantise;
    const float sent[2] = {0.25f, -0.5f}, values[2] = {3, -2};
    tw_sign_sums sums = {0};
    double positive = 0, negative = 0;
    size_t negatives = 0;
    for (size_t i = 0; i < MOST; i++) {
        v[i] = (float)((int)(i % 17) - 8);
        g[i] = (float)((int)(i % 5) - 2);
        float expected = v[i] - (v[i] < 0 ? -0.5f : 0.25f) + 0.5f * g[i];
        negatives += expected < 0;
        *(expected < 0 ? &negative : &positive) += expected;
        sum[i] = expected;
    }
    reference->send_signs(v, g, MOST, 0.5f, sent, bits, &sums);
    assert_memory_equal(v, sum, sizeof v);
    for (size_t i = 0; i < MOST; i++) assert_int_equal(code_at(bits, MOST, i, 1), v[i] < 0);
    for (size_t k = 1; k < 16; k++) {
        sums.positive[0] += sums.positive[k]; /* exact: multiples of 1/4 */
        sums.negative[0] += sums.negative[k];
    }
    assert_true(sums.positive[0] == positive && sums.negative[0] == negative && sums.negatives == negatives);
    reference->add_signs(&(tw_addition){sum, sum, MOST, 0}, bits, values);
    for (size_t i = 0; i < MOST; i++) assert_true(sum[i] == v[i] + values[v[i] < 0]);
    memcpy(sum, v, sizeof v);
    reference->take_signs(sum, MOST, values);
    for (size_t i = 0; i < MOST; i++) assert_true(sum[i] == v[i] - values[v[i] < 0]);
}

/* What is not above 0: zeros, what is below, and NaN. */
TEST(what_is_still_is_filled_and_counted)
{
    static const float alive[] = {1, 0, -0.0f, -1, NAN, 1e-45f};
    float v[] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(tw_kernels_at(TW_ISA_SCALAR)->quantise->fill_still(v, alive, 6, 7), 4);
    for (size_t i = 0; i < 6; i++) assert_true(v[i] == (i % 5 ? 7 : (float)(i + 1)));
}

/* ---- the random rows --------------------------------------------------------------------------------------------- */

enum { DRAWS = 1 << 16 };
static float samples[DRAWS];
static unsigned char drawn[DRAWS];

/* x * a by chance, a code of `bits` bits each; the factor is half. */
static void draw_levels(float a, unsigned bits, tw_noise own)
{
    static float half[DRAWS / 1024];
    for (size_t b = 0; b < DRAWS / 1024; b++) half[b] = 0.5f;
    tw_kernels_best()->quantise->send_levels(drawn, samples, DRAWS, a, &(tw_levels){bits, 1024, half}, own);
}

/* The mean of what x becomes over many elements, within five standard errors of x. */
static void check_mean(const char *what, double x, double mean, double variance)
{
    double error = fabs(mean - x), allowed = 5 * sqrt(variance / DRAWS) + 1e-7 * fabs(x) + 0x1p-24;
    if (error > allowed) fail_msg("%s: %g becomes %g on average, %g away", what, x, mean, error);
}

TEST(dithering_is_unbiased)
{
    static const float inputs[] = {0, 1, -1, 0.5f, -0.25f, 0.001f, -6.999f, 3.3f, 7, -7, 0x1p-20f};
    for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++) {
        double x = inputs[k], part = x - floor(x), sum = 0;
        for (size_t i = 0; i < DRAWS; i++) samples[i] = inputs[k];
        tw_noise own = {{(uint32_t)k * 77 + 1, 5}, 0};
        draw_levels(2, 4, own);
        for (size_t i = 0; i < DRAWS; i++) {
            double level = (double)code_at(drawn, DRAWS, i, 4) - 7;
            if (level != floor(x) && level != floor(x) + (part > 0)) fail_msg("%g becomes %g", x, level);
            sum += level;
        }
        check_mean("dither", x, sum / DRAWS, part * (1 - part));
    }
    for (size_t i = 0; i < DRAWS; i++) samples[i] = i % 2 ? 1e30f : -INFINITY; /* beyond the range: its ends */
    static float sum[DRAWS];
    tw_kernels_best()->quantise->send_trits(drawn, samples, DRAWS, 1, 1, noise);
    tw_kernels_best()->quantise->add_trits(&(tw_addition){sum, sum, DRAWS, 0}, drawn, 1);
    for (size_t i = 0; i < DRAWS; i++) assert_true(sum[i] == (i % 2 ? 1 : -1));
}

static double power_of(uint32_t code)
{
    uint32_t power = code & 127;
    double magnitude = power ? ldexp(1, (int)power - 127) : 0;
    return code >> 7 ? -magnitude : magnitude;
}

TEST(powers_are_unbiased)
{
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
        tw_kernels_best()->quantise->send_powers(drawn, samples, DRAWS, 2, 0.5f, own);
        for (size_t i = 0; i < DRAWS; i++) {
            double power = power_of(code_at(drawn, DRAWS, i, 8)) * (inputs[k] < 0 ? -1 : 1);
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

TEST(e4m3_rounds_to_the_nearest)
{
    for (unsigned code = 0; code < 256; code++) {
        unsigned char byte = (unsigned char)code;
        float sum = 3;
        if ((code & 127) == 127) continue;
        assert_int_equal(sent_as((float)e4m3_of(code)), code);
        tw_kernels_best()->quantise->add_e4m3(&(tw_addition){&sum, &sum, 1, 0}, &byte, 0.5f);
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
    draw_levels(2, 2, own);
    for (size_t i = 0; i < DRAWS; i++) coin[i] = code_at(drawn, DRAWS, i, 2) == 2 ? 1 : -1;
}

static void check_independent(const float *a, const float *b, size_t lag)
{
    double sum = 0;
    for (size_t i = 0; i + lag < DRAWS; i++) sum += (double)a[i] * b[i + lag];
    if (fabs(sum) > 5 * sqrt(DRAWS)) fail_msg("lag %zu: the products add up to %g of %d", lag, sum, DRAWS);
}

TEST(neighbours_steps_and_ranks_share_nothing)
{
    static float coin[4][DRAWS];
    for (size_t k = 0; k < 4; k++) toss(k / 2, k % 2, coin[k]);
    for (size_t k = 0; k < 4; k++)
        for (size_t lag = 1; lag <= 1024; lag += lag < 70 ? 1 : 53) check_independent(coin[k], coin[k], lag);
    for (size_t k = 1; k < 4; k++)
        for (size_t lag = 0; lag < 4; lag++) check_independent(coin[0], coin[k], lag);
}

/* Wherever it stands, NaN is above all, and infinity above all numbers. */
static void check_peaks(const tw_quantise_rows *quantise)
{
    enum { N = 300 };
    for (size_t n = 1; n <= N; n += n < 140 ? 1 : 53)
        for (size_t at = 0; at < n; at += 1 + at / 9) {
            float x[N] = {0};
            x[n / 2] = -3;
            assert_true(quantise->peak(x, n) == 3);
            x[at] = -INFINITY;
            assert_true(quantise->peak(x, n) == INFINITY);
            x[(at * 7 + 1) % n] = -NAN;
            assert_true(isnan(quantise->peak(x, n)));
        }
}

TEST(peaks_are_what_the_header_says)
{
    for (int level = 0; level < TW_ISA_LEVELS; level++)
        if (tw_kernels_at((tw_isa_level)level)) check_peaks(tw_kernels_at((tw_isa_level)level)->quantise);
}

RUN_TESTS(NULL, NULL)
